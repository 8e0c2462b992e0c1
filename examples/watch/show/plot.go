package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/dashboard"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/promtest"
)

// scale is what the vertical axis of a panel shows.
type scale struct {
	low, high float64
	log       bool // low is above 0
	ticks     []float64
}

// newScale returns a scale with room for all values of a panel.
func newScale(a answer) scale {
	f := a.FieldConfig.Defaults
	low, high := math.Inf(1), 0.0
	for _, l := range a.lines {
		for _, p := range l.points {
			if high = max(high, p.Value); p.Value > 0 {
				low = min(low, p.Value)
			}
		}
	}
	if f.Custom.ScaleDistribution.Type == "log" && high > 0 {
		return logScale(low, high)
	}
	if f.Max != nil {
		high = *f.Max
	}
	if high == 0 {
		high = 1
	}
	step := nice(high / 4)
	if f.Decimals != nil && *f.Decimals == 0 {
		step = max(1, step)
	}
	s := scale{high: step * math.Ceil(high/step-1e-9)}
	for n := 0.0; n*step <= s.high+1e-9; n++ {
		s.ticks = append(s.ticks, n*step)
	}
	return s
}

// logScale has a tick for each power of ten.
func logScale(low, high float64) scale {
	first, last := math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
	if first == last {
		last++
	}
	s := scale{low: math.Pow(10, first), high: math.Pow(10, last), log: true}
	for e := first; e <= last; e++ {
		s.ticks = append(s.ticks, math.Pow(10, e))
	}
	return s
}

// nice is 1, 2 or 5 times a power of ten, and not less than a step.
func nice(step float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(step)))
	for _, factor := range []float64{1, 2, 5} {
		if factor*power >= step*.999 {
			return factor * power
		}
	}
	return 10 * power
}

// share is where a value is between low and high.
func (s scale) share(value float64) float64 {
	if !s.log {
		return (value - s.low) / (s.high - s.low)
	}
	value = max(value, s.low)
	return math.Log10(value/s.low) / math.Log10(s.high/s.low)
}

func (s scale) y(plot box, value float64) float64 {
	return plot.bottom() - plot.h*min(1, max(0, s.share(value)))
}

func (s span) x(plot box, at time.Time) float64 {
	return plot.x + plot.w*at.Sub(s.from).Seconds()/s.to.Sub(s.from).Seconds()
}

func drawAxes(v *svg, plot box, f dashboard.Field, values scale, s span) {
	for _, tick := range values.ticks {
		y := values.y(plot, tick)
		v.line(plot.x, y, plot.right(), y, grid)
		v.textEnd(plot.x-8, y+4, 11, dim, f.Text(tick))
	}
	every := timeStep(s.to.Sub(s.from), plot.w)
	for at := s.from.Truncate(every).Add(every); at.Before(s.to); at = at.Add(every) {
		x := s.x(plot, at)
		v.line(x, plot.y, x, plot.bottom(), grid)
		if x > plot.x+20 && x < plot.right()-16 {
			v.textMiddle(x, plot.bottom()+17, 11, dim, at.Format("15:04:05"))
		}
	}
}

// timeStep is the time between two ticks that leaves room for their texts.
func timeStep(shown time.Duration, width float64) time.Duration {
	const widest = 75
	for _, seconds := range []float64{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800} {
		if shown.Seconds()/seconds*widest <= width {
			return time.Duration(seconds) * time.Second
		}
	}
	return time.Hour
}

// drawLine draws a line, and what is below it. It has gaps where points are missing.
func drawLine(v *svg, plot box, f dashboard.Field, l line, color string, values scale, s span) {
	var part []promtest.Point
	flush := func() {
		if len(part) > 0 {
			drawPart(v, plot, f, part, color, values, s)
		}
		part = nil
	}
	for _, p := range l.points {
		if len(part) > 0 && p.At.Sub(part[len(part)-1].At) > s.step*3/2 {
			flush()
		}
		part = append(part, p)
	}
	flush()
}

func drawPart(v *svg, plot box, f dashboard.Field, points []promtest.Point, color string, values scale, s span) {
	var path strings.Builder
	var x, y float64
	for i, p := range points {
		before := y
		x, y = s.x(plot, p.At), values.y(plot, p.Value)
		switch {
		case i == 0:
			fmt.Fprintf(&path, "M%.1f %.1f", x, y)
		case f.Custom.LineInterpolation == "stepAfter" && before != y:
			fmt.Fprintf(&path, "L%.1f %.1fL%.1f %.1f", x, before, x, y)
		default:
			fmt.Fprintf(&path, "L%.1f %.1f", x, y)
		}
	}
	if f.Custom.FillOpacity > 0 {
		first := s.x(plot, points[0].At)
		below := fmt.Sprintf("%sL%.1f %.1fL%.1f %.1fZ", path.String(), x, plot.bottom(), first, plot.bottom())
		v.area(below, color, float64(f.Custom.FillOpacity)/100)
	}
	v.path(path.String(), color)
}
