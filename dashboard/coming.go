package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

// The times that a forecast looks ahead, with bars that people can name.
var spans = []span{
	{"hour", time.Hour, 60},
	{"day", 24 * time.Hour, 96},
	{"month", 30 * 24 * time.Hour, 60},
}

type span struct {
	Name   string
	Long   time.Duration
	number int // of bars
}

const (
	forecasted = 20               // topics on the page of all topics
	baseFor    = time.Minute      // over how long a rate is measured at most, if looks are not rarer
	baseLeast  = 5 * time.Second  // and at least
	chartWide  = 600              // units of the drawing
	chartHigh  = 120              //
	planWithin = 10 * time.Minute // how long workers may take if nothing else is asked for
)

// comingData is what falls due.
type comingData struct {
	Topic, Group string
	Groups       []string
	Span         string
	Spans        []span
	Charts       []chart
	Plan         *plan // of one topic
	Err          error // why one of all topics could not be read
}

// chart is the forecast of a topic, drawn.
type chart struct {
	admin.Forecast
	Bars    []bar
	Highest int
	Rows    []admin.Bucket // those with messages
}

// bar is a part of the time, in units of the drawing.
type bar struct {
	X, Y, Width, Height float64
	Title               string
}

// plan says what it takes to handle what comes.
type plan struct {
	Rate      float64
	Measured  bool
	RateText  string // as it was typed
	Estimate  admin.Estimate
	PerWorker string
	At        string
	Within    string
	Workers   int
	Asked     bool // for workers
}

// comingPage shows what falls due in a topic, or in those that have most scheduled.
func (d *Dashboard) comingPage(ctx context.Context, q *request) (page, error) {
	chosen := spans[0]
	for _, s := range spans {
		if s.Name == q.query.Get("next") {
			chosen = s
		}
	}
	data := comingData{Topic: q.topic(), Group: q.group(), Span: chosen.Name, Spans: spans}
	o, err := d.looks.all(ctx)
	if err != nil {
		return page{}, err
	}
	if s := o.topic(data.Topic); s != nil {
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
	query := admin.ForecastQuery{Span: chosen.Long, Buckets: chosen.number, Group: data.Group}
	for _, topic := range topicsToForecast(o, data.Topic) {
		seen, err := d.forecast(ctx, topic, query)
		if err == nil && data.Topic != "" {
			data.Plan, err = d.planFor(ctx, q, query, seen)
		}
		switch {
		case err == nil:
			data.Charts = append(data.Charts, draw(seen.now))
		case data.Topic != "":
			return page{}, err
		case data.Err == nil && !errors.Is(err, admin.ErrTopicNotFound): // it may be gone since the look at all
			data.Err = err
		}
	}
	return page{name: "coming", title: "What comes", live: data.Topic != "", data: data}, nil
}

// topicsToForecast is the topic that was asked for, or those that have most scheduled.
func topicsToForecast(o *overview, topic string) []string {
	if topic != "" {
		return []string{topic}
	}
	most := o.pointers()
	slices.SortFunc(most, func(a, b *admin.TopicStats) int {
		return cmp.Or(cmp.Compare(b.Scheduled, a.Scheduled), cmp.Compare(a.Topic, b.Topic))
	})
	var topics []string
	for _, s := range most[:min(forecasted, len(most))] {
		if s.Scheduled > 0 {
			topics = append(topics, s.Topic)
		}
	}
	return topics
}

// forecasts are the forecast of now, one before it to measure the rate by, and one between them that is to take its place.
type forecasts struct{ base, next, now admin.Forecast }

// with is what is known after another look. A base is replaced by one that is old enough to measure by.
func (f forecasts) with(now admin.Forecast) *forecasts {
	switch {
	case f.now.At.IsZero():
		f.base, f.next = now, now
	case now.At.Sub(f.next.At) >= baseFor/2:
		f.base, f.next = f.next, now
	}
	f.now = now
	return &f
}

func (d *Dashboard) forecast(ctx context.Context, topic string, query admin.ForecastQuery) (*forecasts, error) {
	key := fmt.Sprintf("forecast %v %d %q %q", query.Span, query.Buckets, topic, query.Group)
	value, err := d.looks.get(ctx, key, func(ctx context.Context) (any, error) {
		now, err := d.config.Admin.Forecast(ctx, topic, query)
		if err != nil {
			return nil, err
		}
		var seen forecasts
		if before := d.looks.shared[key]; before != nil && before.err == nil { // load has the turn
			seen = *before.value.(*forecasts)
		}
		return seen.with(now), nil
	})
	if err != nil {
		return nil, err
	}
	return value.(*forecasts), nil
}

// draw makes bars of a forecast.
func draw(f admin.Forecast) chart {
	c := chart{Forecast: f}
	for _, b := range f.Buckets {
		c.Highest = max(c.Highest, b.Messages)
		if b.Messages > 0 {
			c.Rows = append(c.Rows, b)
		}
	}
	width := chartWide / float64(max(1, len(f.Buckets)))
	for i, b := range f.Buckets {
		if b.Messages == 0 {
			continue
		}
		high := max(1, chartHigh*float64(b.Messages)/float64(c.Highest))
		c.Bars = append(c.Bars, bar{
			X: float64(i) * width, Y: chartHigh - high, Width: max(1, width-1), Height: high,
			Title: fmt.Sprintf("%s until %s UTC", humanize.Count(b.Messages, "message", "messages"), b.Until.UTC().Format("2006-01-02 15:04:05")),
		})
	}
	return c
}

// planFor says when the backlog is gone, and how many workers are needed if that was asked for.
func (d *Dashboard) planFor(ctx context.Context, q *request, query admin.ForecastQuery, seen *forecasts) (*plan, error) {
	p, err := backlogOf(q, seen)
	if err != nil || p.PerWorker == "" {
		return p, err
	}
	now := seen.now
	demand, err := p.demand(now.At.UTC())
	if err != nil {
		return nil, err
	}
	if long := demand.At.Add(demand.Within).Sub(now.At); long > query.Span {
		query.Buckets = admin.MaxBuckets
		query.Span = (long + 90*time.Minute).Truncate(time.Hour) // the same for a while, and more, since a shared look may be older
		further, err := d.forecast(ctx, now.Topic, query)
		if err != nil {
			return nil, err
		}
		now = further.now
	}
	if demand.At.Before(now.At) {
		demand.At = now.At
	}
	p.Asked = true
	p.Workers, err = now.Workers(demand)
	return p, err
}

// backlogOf says when the backlog is gone, at the rate that was typed or measured.
func backlogOf(q *request, seen *forecasts) (*plan, error) {
	p := &plan{RateText: q.query.Get("rate"), PerWorker: q.query.Get("per-worker"), At: q.query.Get("at"), Within: q.query.Get("within")}
	var err error
	if p.RateText != "" {
		if p.Rate, err = strconv.ParseFloat(p.RateText, 64); err != nil || !(p.Rate >= 0) {
			return nil, badField("rate", p.RateText, "want messages a second")
		}
	} else if seen.now.At.Sub(seen.base.At) >= baseLeast {
		p.Rate, p.Measured = seen.base.RateUntil(seen.now), true
	}
	p.Estimate = seen.now.Estimate(p.Rate)
	return p, nil
}

// demand is what was typed for the workers. A time that has passed while the page is open is now.
func (p *plan) demand(now time.Time) (demand admin.Demand, err error) {
	demand = admin.Demand{Within: planWithin, Rate: p.Rate}
	if demand.PerWorker, err = strconv.ParseFloat(p.PerWorker, 64); err != nil {
		return demand, badField("a worker handles", p.PerWorker, "want messages a second")
	}
	if p.Within != "" {
		if demand.Within, err = humanize.ParseDuration(p.Within); err != nil {
			return demand, badField("within", p.Within, err.Error())
		}
	}
	if p.At != "" {
		if demand.At, err = humanize.ParseTime(p.At, now, humanize.Ahead); err != nil {
			return demand, badField("at", p.At, err.Error())
		}
	}
	if demand.At.Before(now) {
		demand.At = now
	}
	return demand, nil
}

// Query is the query of the page of one topic.
func (c chart) Query(span string) string {
	return url.Values{"topic": {c.Topic}, "next": {span}}.Encode()
}
