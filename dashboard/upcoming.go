package dashboard

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redisdelay/watermill-redisdelay/admin"
)

// How far the charts look ahead, with bars that people can name.
var spans = []span{
	{"hour", "hour", "minute", "clock", time.Hour, 60},
	{"day", "24 hours", "15 minutes", "axis", 24 * time.Hour, 96},
	{"month", "30 days", "12 hours", "day", 30 * 24 * time.Hour, 60},
}

type span struct {
	Name   string // in URLs
	Words  string // for "in the next"
	Per    string // how long a bar is
	Form   string // of the times of its axis
	Long   time.Duration
	number int // of bars
}

const (
	maxCharts = 20  // topics on the page of all topics
	chartWide = 600 // units of the drawing
	chartHigh = 120 // units of the drawing
	ticks     = 6   // steps between the times that its axis names
	margin    = 25  // units at each end of the axis, where the name of a time does not fit
)

// upcomingData is what becomes due, and when.
type upcomingData struct {
	Topic, Group string
	Counts       admin.Counts // of the topic
	Groups       []string
	Span         span
	Spans        []span
	Charts       []chart
	Total, Later int   // of all charts: what becomes due in the span, and after it
	Err          error // why one of all topics could not be read
}

// chart draws the upcoming messages of a topic.
type chart struct {
	admin.Upcoming
	Bars  []bar        // of the buckets with messages
	Peak  admin.Bucket // the first of those with the most
	Tie   bool         // a later one has as many
	Ticks []tick       // full ones
	Form  string       // of their times
	Shift float64      // percent of the axis before the first of them
	State state        // of the topic

	Half, Top int // numbers in the middle and at the upper end of the scale
}

// bar is a part of the time, in units of the drawing.
type bar struct {
	admin.Bucket
	X, Y, Width, Height float64
}

// tick is a time at the axis.
type tick struct {
	X  int // in units of the drawing
	At time.Time
}

// upcomingPage shows when the messages of a topic become due, or those of the topics that have most scheduled.
func (d *Dashboard) upcomingPage(ctx context.Context, q *request) (page, error) {
	chosen := spans[max(0, slices.IndexFunc(spans, func(s span) bool { return s.Name == q.query.Get("next") }))]
	data := upcomingData{Topic: q.topic(), Group: q.group(), Span: chosen, Spans: spans}
	o, err := d.overview(ctx)
	if err != nil {
		return page{}, err
	}
	if s := o.topic(data.Topic); s != nil {
		data.Counts = s.Counts
		for _, g := range s.Groups {
			data.Groups = append(data.Groups, g.Group)
		}
		if data.Group == "" && len(data.Groups) == 1 {
			data.Group = data.Groups[0]
		}
	}
	if data.Topic == "" {
		data.Err = o.Err
	}
	query := admin.UpcomingQuery{Span: chosen.Long, Buckets: chosen.number, Group: data.Group}
	for _, topic := range topicsToChart(o, data.Topic) {
		u, err := d.config.Admin.Upcoming(ctx, topic, query)
		switch {
		case err == nil:
			c := draw(u, chosen.Form, data.Topic == "")
			data.Total, data.Later = data.Total+c.Total(), data.Later+c.Later
			if s := o.topic(topic); s != nil {
				c.State = stateOfTopic(s)
			}
			data.Charts = append(data.Charts, c)
		case data.Topic != "":
			return page{}, err
		case data.Err == nil && !errors.Is(err, admin.ErrTopicNotFound): // it was deleted since the overview was read
			data.Err = err
		}
	}
	slices.SortStableFunc(data.Charts, func(a, b chart) int { return cmp.Compare(b.Total(), a.Total()) })
	return page{Name: "upcoming", Title: "Upcoming", live: data.Topic != "", Data: data}, nil
}

// topicsToChart is the topic that was asked for, or those that have most scheduled.
func topicsToChart(o *overview, topic string) []string {
	if topic != "" {
		return []string{topic}
	}
	most := slices.Clone(o.Topics)
	sortTopics(most, "scheduled")
	var topics []string
	for _, s := range most[:min(maxCharts, len(most))] {
		if s.Scheduled > 0 {
			topics = append(topics, s.Topic)
		}
	}
	return topics
}

// draw makes a chart, or a strip, which has no scale and fills its height.
func draw(u admin.Upcoming, form string, strip bool) chart {
	c := chart{Upcoming: u, Form: form}
	c.Peak = slices.MaxFunc(u.Buckets, func(a, b admin.Bucket) int { return a.Messages - b.Messages })
	c.Tie = slices.ContainsFunc(u.Buckets, func(b admin.Bucket) bool { return b.Messages == c.Peak.Messages && b.After.After(c.Peak.Until) })
	step := u.Until().Sub(u.At) / ticks
	for at := u.At.Add(step - 1).Truncate(step); at.Before(u.Until()); at = at.Add(step) {
		if x := int(chartWide * at.Sub(u.At) / (step * ticks)); x >= margin && x <= chartWide-margin {
			c.Ticks = append(c.Ticks, tick{x, at})
		}
	}
	c.Shift = 100 * float64(c.Ticks[0].X) / chartWide
	c.Half = halfOf(c.Peak.Messages)
	c.Top = 2 * c.Half
	if strip {
		c.Top = c.Peak.Messages
	}
	width := chartWide / float64(max(1, len(u.Buckets)))
	for i, b := range u.Buckets {
		if b.Messages == 0 {
			continue
		}
		high := max(1.5, chartHigh*float64(b.Messages)/float64(c.Top))
		c.Bars = append(c.Bars, bar{Bucket: b, X: float64(i) * width, Y: chartHigh - high, Width: max(1, 0.8*width), Height: high})
	}
	return c
}

// halfOf is at least half of a number, and has one digit and zeros.
func halfOf(n int) int {
	power := 1
	for n > 20*power {
		power *= 10
	}
	return max(1, (n+2*power-1)/(2*power)*power)
}
