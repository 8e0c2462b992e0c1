package redisdelayprom

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"

	"github.com/redisdelay/watermill-redisdelay/admin"
)

// Collector exports the data in Redis. It is a prometheus.Collector, and safe for concurrent use. All processes export
// the same data, so register it in one of them, or aggregate with max, not sum. Create it with NewCollector: the zero
// value panics.
//
// Concurrent scrapes share one reading of Redis. If that fails, or takes longer than Timeout, a scrape exports what
// could be read, and redisdelay_redis_up is 0. The reading continues until the client's own timeouts, and further
// scrapes wait for it.
type Collector struct {
	config CollectorConfig  // immutable
	now    func() time.Time // immutable

	mu     sync.Mutex
	last   *reading // guarded by mu; nil before the first scrape
	errors float64  // guarded by mu; readings that have failed
}

var _ prometheus.Collector = (*Collector)(nil)

// extra is the part of a scrape that is not about topics.
type extra struct {
	schedules int
	longest   time.Duration
	inbox     admin.Inbox

	noSchedules, noInbox error // why they could not be read
}

// reading is one reading of Redis.
type reading struct {
	start  time.Time
	done   chan struct{} // closed when the fields below are set
	end    time.Time
	topics []admin.TopicStats
	extra  *extra
	err    error // why not all could be read

	counted bool // guarded by Collector.mu; it has failed
}

func (r *reading) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// NewCollector returns a Collector. It does no I/O. The error is a *redisdelay.ConfigError.
func NewCollector(config CollectorConfig) (*Collector, error) {
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	return &Collector{config: config, now: time.Now}, nil
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{redisUp, scrapeDuration, scrapeErrors, schedulesBehind, behindFor, inboxWaiting, inboxOldest, inboxRefused, dueWithin} {
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
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	r := c.reading()
	timer := time.NewTimer(c.config.Timeout)
	defer timer.Stop()
	select {
	case <-r.done:
	case <-timer.C:
	}
	show := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, value, labels...)
	}
	topics, extra, took, up, failures := c.outcome(r)
	show(redisUp, prometheus.GaugeValue, one(up))
	show(scrapeDuration, prometheus.GaugeValue, took.Seconds())
	show(scrapeErrors, prometheus.CounterValue, failures)
	if extra != nil && extra.noSchedules == nil {
		show(schedulesBehind, prometheus.GaugeValue, float64(extra.schedules))
		show(behindFor, prometheus.GaugeValue, extra.longest.Seconds())
	}
	if extra != nil && extra.noInbox == nil {
		show(inboxWaiting, prometheus.GaugeValue, float64(extra.inbox.Waiting))
		show(inboxOldest, prometheus.GaugeValue, extra.inbox.Oldest.Seconds())
		show(inboxRefused, prometheus.GaugeValue, float64(extra.inbox.Refused))
	}
	for _, t := range topics {
		for _, g := range topicGauges {
			show(g.desc, prometheus.GaugeValue, g.value(t), t.Topic)
		}
		for i, n := range t.DueWithin {
			show(dueWithin, prometheus.GaugeValue, float64(n), t.Topic, model.Duration(c.config.DueWithin[i]).String())
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
func (c *Collector) reading() *reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if r := c.last; r != nil && (!r.ended() || now.Sub(r.end) < c.config.MaxAge) {
		return r
	}
	c.last = &reading{start: now, done: make(chan struct{})}
	go c.read(c.last) // ends with the reading
	return c.last
}

func (c *Collector) read(r *reading) {
	defer close(r.done)
	// Earlier than scrapes give up: if one master hangs, they show what the others have.
	ctx, cancel := context.WithTimeout(context.Background(), c.config.Timeout*9/10)
	defer cancel()
	others := make(chan *extra, 1) // apart from the topics: a master that hangs may have only some of them
	go func() {
		b := &extra{}
		b.schedules, b.longest, b.noSchedules = c.config.Admin.SchedulesBehind(ctx)
		b.inbox, b.noInbox = c.config.Admin.Inbox(ctx)
		others <- b
	}()
	topics, err := c.config.Admin.Stats(ctx, admin.StatsOptions{DueWithin: c.config.DueWithin})
	r.topics, r.extra = fold(topics, c.config.MaxPlaces), <-others
	r.err, r.end = errors.Join(err, r.extra.noSchedules, r.extra.noInbox), c.now()
}

// outcome is what a scrape shows of a reading that has ended, or of which it waits no
// longer for the end.
func (c *Collector) outcome(r *reading) (topics []admin.TopicStats, others *extra, took time.Duration, up bool, failures float64) {
	took = c.now().Sub(r.start)
	if r.ended() {
		topics, others, took, up = r.topics, r.extra, r.end.Sub(r.start), r.err == nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !up && !r.counted {
		r.counted = true
		c.errors++
	}
	return topics, others, took, up, c.errors
}
