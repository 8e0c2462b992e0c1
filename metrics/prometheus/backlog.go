package redisdelayprom

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redisdelay/watermill-redisdelay/admin"
)

// Backlog shows what is in Redis. It is a prometheus.Collector, safe for concurrent use.
// Several scrapes at once read Redis once. All processes show the same, so one of them is
// enough; if several do, take the max of a series, not the sum.
//
// When Redis cannot be read, or not in time, scrapes show what could be read, and
// redisdelay_redis_up is 0.
type Backlog struct {
	config BacklogConfig    // immutable
	now    func() time.Time // immutable

	mu     sync.Mutex // held while Redis is read
	read   time.Time  // guarded by mu; zero before the first time
	last   reading    // guarded by mu
	errors float64    // guarded by mu; of all readings
}

var _ prometheus.Collector = (*Backlog)(nil)

// reading is what reading Redis has led to.
type reading struct {
	up     float64 // 1 if all could be read
	took   time.Duration
	topics []admin.Backlog
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
	b.mu.Lock()
	b.refresh()
	last, errors := b.last, b.errors
	b.mu.Unlock()
	show := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, value, labels...)
	}
	show(redisUp, prometheus.GaugeValue, last.up)
	show(scrapeDuration, prometheus.GaugeValue, last.took.Seconds())
	show(scrapeErrors, prometheus.CounterValue, errors)
	for _, t := range last.topics {
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

// refresh reads Redis unless it was read a short while ago. The caller holds mu.
func (b *Backlog) refresh() {
	start := b.now()
	if !b.read.IsZero() && start.Sub(b.read) < b.config.MaxAge {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), b.config.Timeout)
	defer cancel()
	topics, err := b.config.Admin.Backlogs(ctx)
	b.read = b.now()
	b.last = reading{up: 1, took: b.read.Sub(start), topics: fold(topics, b.config.MaxTopics, b.config.MaxGroups)}
	if err != nil {
		b.errors++
		b.last.up = 0
	}
}
