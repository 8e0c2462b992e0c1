package dashboard

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redisdelay/watermill-redisdelay/admin"
)

// spans are the time spans of charts.
var spans = []span{
	{"hour", "hour", "minute", "clock", time.Hour, 60},
	{"day", "24 hours", "15 minutes", "axis", 24 * time.Hour, 96},
	{"month", "30 days", "12 hours", "day", 30 * 24 * time.Hour, 60},
}

type span struct {
	Name   string // in URLs
	Words  string // follows "in the next"
	Per    string // length of a bar
	Form   string // format of the times on the axis
	Long   time.Duration
	number int // number of bars
}

const (
	maxCharts = 20  // topics on the page of all topics
	chartWide = 600 // SVG units
	chartHigh = 120 // SVG units
	ticks     = 6   // intervals between the labels of the axis
	atStart   = 64  // SVG units at the start of the axis, where only "now" fits
	atEnd     = 25  // SVG units at the end of the axis, where no label fits
)

// upcomingData has the upcoming messages by time.
type upcomingData struct {
	Topic, Group string
	Stats        *admin.TopicStats // nil on the page of all topics
	Span         span
	Spans        []span
	All          chart
	Charts       []chart // one for each topic
	Err          error   // why a topic could not be read
}

// chart is a chart of the upcoming messages of one topic or all topics.
type chart struct {
	admin.Upcoming
	Stats *admin.TopicStats
	Bars  []bar        // buckets with messages
	Peak  admin.Bucket // the first bucket with the most messages
	Tie   bool         // a later bucket has as many
	Ticks []tick       // at round times
	Form  string       // format of these times
	Shift float64      // position of the first tick, in percent of the axis

	Half, Top int // numbers at the middle and the top of the scale
}

// bar is the bar of a bucket, in SVG units.
type bar struct {
	admin.Bucket
	X, Y, Width, Height float64
}

// tick is a label of the axis.
type tick struct {
	X  int // in SVG units
	At time.Time
}

// upcomingPage shows when messages become due: those of one topic, or of the topics with the most scheduled messages.
func (d *Dashboard) upcomingPage(ctx context.Context, q *request) (page, error) {
	chosen := spans[max(0, slices.IndexFunc(spans, func(s span) bool { return s.Name == q.query.Get("next") }))]
	data := upcomingData{Topic: q.topic(), Group: q.group(), Span: chosen, Spans: spans}
	topics, err := d.toChart(ctx, &data)
	if err != nil {
		return page{}, err
	}
	query := admin.UpcomingQuery{Span: chosen.Long, Buckets: chosen.number, Group: data.Group}
	var all admin.Upcoming
	for _, s := range topics {
		u, err := d.config.Admin.Upcoming(ctx, cmp.Or(data.Topic, s.Topic), query)
		switch {
		case err == nil:
			c := draw(u, chosen.Form, true)
			c.Stats = s
			data.Charts = append(data.Charts, c)
			all = sum(all, u)
		case data.Topic != "":
			return page{}, err
		case data.Err == nil && !errors.Is(err, admin.ErrTopicNotFound): // it was deleted since the overview was read
			data.Err = err
		}
	}
	if len(data.Charts) > 0 {
		data.All = draw(all, chosen.Form, false)
	}
	slices.SortStableFunc(data.Charts, func(a, b chart) int { return cmp.Compare(b.Total(), a.Total()) })
	return page{Name: "upcoming", Title: "Upcoming", live: data.Topic != "", Data: data}, nil
}

// toChart returns the topic of the request, or the topics with the most scheduled messages.
func (d *Dashboard) toChart(ctx context.Context, data *upcomingData) ([]*admin.TopicStats, error) {
	if data.Topic != "" {
		data.Stats = d.stats(ctx, data.Topic)
		if data.Group == "" && len(data.Stats.Groups) == 1 {
			data.Group = data.Stats.Groups[0].Group
		}
		return []*admin.TopicStats{data.Stats}, nil
	}
	o, err := d.overview(ctx)
	if err != nil {
		return nil, err
	}
	data.Err = o.Err
	most := slices.DeleteFunc(slices.Clone(o.Topics), func(s *admin.TopicStats) bool { return s.Scheduled == 0 })
	sortTopics(most, "scheduled")
	return most[:min(maxCharts, len(most))], nil
}

// sum adds the messages of a topic.
func sum(all, u admin.Upcoming) admin.Upcoming {
	if all.Buckets == nil {
		u.Buckets = slices.Clone(u.Buckets)
		return u
	}
	for i, b := range u.Buckets {
		all.Buckets[i].Messages += b.Messages
	}
	all.DueNow, all.Later = all.DueNow+u.DueNow, all.Later+u.Later
	return all
}

// draw returns a chart, or a strip: a chart without a scale, whose highest bar fills the height.
func draw(u admin.Upcoming, form string, strip bool) chart {
	c := chart{Upcoming: u, Form: form}
	c.Peak = slices.MaxFunc(u.Buckets, func(a, b admin.Bucket) int { return a.Messages - b.Messages })
	c.Tie = slices.ContainsFunc(u.Buckets, func(b admin.Bucket) bool { return b.Messages == c.Peak.Messages && b.After.After(c.Peak.Until) })
	step := u.Until().Sub(u.At) / ticks
	for at := u.At.Add(step - 1).Truncate(step); at.Before(u.Until()); at = at.Add(step) {
		if x := int(chartWide * at.Sub(u.At) / (step * ticks)); x >= atStart && x <= chartWide-atEnd {
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

// halfOf returns a round number, a digit followed by zeros, that is at least half of n.
func halfOf(n int) int {
	power := 1
	for n > 20*power {
		power *= 10
	}
	return max(1, (n+2*power-1)/(2*power)*power)
}
