package main

import (
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/dashboard"
)

// Measures of the picture, in pixels.
const (
	width   = 1600
	margin  = 16
	columns = 24
	gap     = 8
	column  = (width - 2*margin + gap) / columns // with the gap
	unit    = 34                                 // of height, with the gap
	head    = 64
)

// Colours of Grafana's dark theme.
const (
	background = "#111217"
	surface    = "#181b1f"
	border     = "#2c2e36"
	bright     = "#d5d6de"
	dim        = "#8e8fa0"
	grid       = "#25272d"
)

var palette = []string{
	"#73bf69", "#f2cc0c", "#8ab8ff", "#ff9830", "#f2495c", "#5794f2", "#b877d9", "#c0d8ff", "#fade2a", "#96d98d",
}

var statColors = map[string]string{"green": "#3f8a45", "orange": "#d97a1a", "red": "#c4314b"}

// box is a place in the picture.
type box struct{ x, y, w, h float64 }

func (b box) right() float64  { return b.x + b.w }
func (b box) bottom() float64 { return b.y + b.h }

// draw draws the panels of a dashboard, with what they show, where Grafana would have them.
func draw(d *dashboard.Dashboard, answers []answer, s span) []byte {
	rows := 0
	for _, a := range answers {
		rows = max(rows, a.GridPos.Y+a.GridPos.H)
	}
	v := newSVG(width, head+float64(rows*unit)+margin)
	drawHead(v, d, s)
	for _, a := range answers {
		at := box{
			x: float64(margin + a.GridPos.X*column), y: float64(head + a.GridPos.Y*unit),
			w: float64(a.GridPos.W*column - gap), h: float64(a.GridPos.H*unit - gap),
		}
		switch a.Type {
		case dashboard.Row:
			v.text(at.x+2, at.y+20, 16, bright, bold, "⌄  "+a.Title)
		case dashboard.Stat:
			drawStat(v, at, a)
		default:
			drawPanel(v, at, a, s)
		}
	}
	return v.bytes()
}

func drawHead(v *svg, d *dashboard.Dashboard, s span) {
	v.text(margin+2, 38, 20, bright, bold, d.Title)
	x := float64(margin + 140)
	for _, variable := range d.Templating.List {
		chosen := "All"
		if variable.Type == "datasource" {
			chosen = "Prometheus"
		}
		x = drawChoice(v, x, variable.Label, chosen)
	}
	v.textEnd(width-margin, 38, 13, dim, "Last "+dashboard.Field{Unit: "s"}.Text(s.to.Sub(s.from).Round(time.Second).Seconds()))
}

// drawChoice draws a variable with its value, and returns where the next one begins.
func drawChoice(v *svg, x float64, label, chosen string) float64 {
	first, second := textWidth(label, 13)+20, textWidth(chosen, 13)+20
	v.box(box{x, 18, first + second, 30}, surface, border)
	v.text(x+10, 38, 13, dim, plain, label)
	v.text(x+first+8, 38, 13, bright, plain, chosen)
	return x + first + second + 12
}

// drawStat draws one number on the color of its threshold.
func drawStat(v *svg, at box, a answer) {
	f, text, color := a.FieldConfig.Defaults, "No data", surface
	if len(a.lines) > 0 {
		value := a.lines[0].last()
		text = f.Text(value)
		for _, step := range f.Thresholds.Steps {
			if step.Value == nil || value >= *step.Value {
				color = statColors[step.Color]
			}
		}
	}
	v.box(at, color, color)
	v.text(at.x+10, at.y+22, 14, "#ffffff", bold, a.Title)
	v.textMiddle(at.x+at.w/2, at.y+at.h/2+26, 40, "#ffffff", text)
}

// drawPanel draws a panel with its lines and their legend.
func drawPanel(v *svg, at box, a answer, s span) {
	v.box(at, surface, border)
	v.text(at.x+10, at.y+22, 14, bright, bold, a.Title)
	rows := layLegend(a, at.w-20)
	plot := box{at.x + 62, at.y + 38, at.w - 78, at.h - 38 - 26 - float64(len(rows))*legendLine}
	drawLegend(v, at.x+10, at.bottom()-float64(len(rows))*legendLine+6, rows)
	values := newScale(a)
	drawAxes(v, plot, a.FieldConfig.Defaults, values, s)
	for i, l := range a.lines {
		drawLine(v, plot, a.FieldConfig.Defaults, l, palette[i%len(palette)], values, s)
	}
}
