package redisdelayprom

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redisdelay/watermill-redisdelay/admin"
)

// Backlog shows what is in Redis. It is a prometheus.Collector, safe for concurrent use.
// Several scrapes at once read Redis once. All processes show the same, and each that
// registers a Backlog reads Redis by itself: register it in one, or take the max of a
// series, not the sum. Make it with NewBacklog: the zero value panics.
//
// When Redis cannot be read, or not in time, scrapes show what could be read, and
// redisdelay_redis_up is 0. No scrape waits longer than Timeout. What reads is a goroutine
// that ends with the reading: a client without ContextTimeoutEnabled may wait for a reply until
// its own ReadTimeout, and try again. Meanwhile further scrapes wait for the same reading.
type Backlog struct {
	config BacklogConfig    // immutable
	now    func() time.Time // immutable

	mu     sync.Mutex
	last   *reading // guarded by mu; nil before the first scrape
	errors float64  // guarded by mu; readings that have failed
}

var _ prometheus.Collector = (*Backlog)(nil)

// reading is one reading of Redis.
type reading struct {
	start  time.Time
	done   chan struct{} // closed when the fields below are set
	end    time.Time
	topics []admin.Backlog
	err    error // why not all could be read

	counted bool // guarded by Backlog.mu; it has failed
}

func (r *reading) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// NewBacklog returns a Backlog. It does no I/O. The error is a *redisdelay.ConfigError.
func NewBacklog(config BacklogConfig) (*Backlog, error) {
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	return &Backlog{config: config, now: time.Now}, nil
}

// Describe implements prometheus.Collector.
func (b *Backlog) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{redisUp, scrapeDuration, scrapeErrors} {
		ch <- d
	}
	for _, g := range topicGauges {
		ch <- g.desc
	}
	for _, g := range groupGauges {
		ch <- g.desc
	}
}

// Collect implements prometheus.Collector.
func (b *Backlog) Collect(ch chan<- prometheus.Metric) {
	r := b.reading()
	timer := time.NewTimer(b.config.Timeout)
	defer timer.Stop()
	select {
	case <-r.done:
	case <-timer.C:
	}
	show := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, value, labels...)
	}
	topics, took, up, errors := b.outcome(r)
	show(redisUp, prometheus.GaugeValue, one(up))
	show(scrapeDuration, prometheus.GaugeValue, took.Seconds())
	show(scrapeErrors, prometheus.CounterValue, errors)
	for _, t := range topics {
		for _, g := range topicGauges {
			show(g.desc, prometheus.GaugeValue, g.value(t), t.Topic)
		}
		for _, one := range t.Groups {
			for _, g := range groupGauges {
				show(g.desc, prometheus.GaugeValue, g.value(one), t.Topic, one.Group)
			}
		}
	}
}

// reading returns the reading that is under way or was made a short while ago, or begins
// one.
func (b *Backlog) reading() *reading {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	if r := b.last; r != nil && (!r.ended() || now.Sub(r.end) < b.config.MaxAge) {
		return r
	}
	b.last = &reading{start: now, done: make(chan struct{})}
	go b.read(b.last) // ends with the reading
	return b.last
}

func (b *Backlog) read(r *reading) {
	defer close(r.done)
	// Earlier than scrapes give up: if one master hangs, they show what the others have.
	ctx, cancel := context.WithTimeout(context.Background(), b.config.Timeout*9/10)
	defer cancel()
	topics, err := b.config.Admin.Backlogs(ctx)
	r.topics, r.err, r.end = fold(topics, b.config.MaxPlaces), err, b.now()
}

// outcome is what a scrape shows of a reading that has ended, or of which it waits no
// longer for the end.
func (b *Backlog) outcome(r *reading) (topics []admin.Backlog, took time.Duration, up bool, errors float64) {
	took = b.now().Sub(r.start)
	if r.ended() {
		topics, took, up = r.topics, r.end.Sub(r.start), r.err == nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !up && !r.counted {
		r.counted = true
		b.errors++
	}
	return topics, took, up, b.errors
}
