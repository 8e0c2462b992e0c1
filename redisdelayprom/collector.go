package redisdelayprom

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
)

const (
	// DefaultMaxAge is the default of CollectorConfig.MaxAge.
	DefaultMaxAge = 10 * time.Second

	// DefaultTimeout is the default of CollectorConfig.Timeout, less than the 10s after which Prometheus ends a scrape.
	DefaultTimeout = 5 * time.Second

	// MaxDueWithin is the maximum number of times in CollectorConfig.DueWithin.
	MaxDueWithin = 10
)

// CollectorConfig configures a Collector.
type CollectorConfig struct {
	// Admin reads the data. Required.
	Admin *admin.Admin

	// MaxAge is how long scrapes share a reading of Redis. Negative: each scrape reads. Default: DefaultMaxAge.
	MaxAge time.Duration

	// Timeout is how long a reading may take. Default: DefaultTimeout.
	Timeout time.Duration

	// MaxPlaces is the maximum number of topics, and of groups of topics, with series of their own. The first ones in
	// alphabetical order have them. The others are added to topic "other" and group "other". A topic whose groups exceed
	// it is added as a whole. Default: DefaultMaxPlaces.
	MaxPlaces int

	// DueWithin has up to MaxDueWithin times of whole seconds. For each, a topic has a series of
	// topic_due_within_messages, to scale consumers before a peak. Each takes Redis some 10 µs for each partition.
	// Default: none.
	DueWithin []time.Duration
}

func (c *CollectorConfig) setDefaults() {
	c.DueWithin = slices.Compact(slices.Sorted(slices.Values(c.DueWithin)))
	c.MaxAge = cmp.Or(c.MaxAge, DefaultMaxAge)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
}

func (c CollectorConfig) validate() error {
	switch {
	case c.Admin == nil:
		return &redisdelay.ConfigError{Field: "Admin", Problem: "is nil"}
	case c.Timeout < 0:
		return &redisdelay.ConfigError{Field: "Timeout", Problem: fmt.Sprintf("is %s, want more than 0", c.Timeout)}
	case len(c.DueWithin) > MaxDueWithin:
		return &redisdelay.ConfigError{Field: "DueWithin", Problem: fmt.Sprintf("has %d times, want at most %d", len(c.DueWithin), MaxDueWithin)}
	}
	for _, d := range c.DueWithin {
		if d <= 0 || d%time.Second != 0 {
			return &redisdelay.ConfigError{Field: "DueWithin", Problem: fmt.Sprintf("has %s, want whole seconds, at least 1s", d)}
		}
	}
	return nil
}

// Collector exports the data in Redis. It is a prometheus.Collector, and safe for concurrent use. All processes export
// the same data, so register it in one of them, or aggregate with max, not sum. Create it with NewCollector: the zero
// value panics.
//
// Concurrent scrapes share one reading of Redis. If that fails, or takes longer than Timeout, a scrape exports what
// could be read, and redisdelay_redis_up is 0.
type Collector struct {
	config CollectorConfig // immutable

	mu   sync.Mutex // held while Redis is read
	last *reading   // guarded by mu
}

var _ prometheus.Collector = (*Collector)(nil)

// reading is what was read of Redis.
type reading struct {
	end       time.Time
	took      time.Duration
	failures  int                             // of this reading and all before
	err       error                           // why not all could be read
	topics    map[string]*admin.TopicStats    // by label
	groups    map[[2]string]*admin.GroupStats // by the labels of topic and group
	dueWithin []time.Duration                 // of TopicStats.DueWithin

	behind      int // schedules
	behindFor   time.Duration
	noSchedules error // why they could not be read

	inbox   admin.Inbox
	noInbox error // why it could not be read
}

// NewCollector returns a Collector. It does no I/O. The error is a *redisdelay.ConfigError.
func NewCollector(config CollectorConfig) (*Collector, error) {
	config.setDefaults()
	if err := cmp.Or(config.validate(), setPlaces(&config.MaxPlaces)); err != nil {
		return nil, err
	}
	return &Collector{config: config, last: &reading{}}, nil
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, g := range gauges {
		ch <- g.desc
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	r := c.reading()
	for _, g := range gauges {
		g.series(r, func(value float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(g.desc, g.kind, value, labels...)
		})
	}
}

// reading returns the last reading if it has ended since MaxAge before the call, else a new one. So scrapes that wait
// for another's reading share it.
func (c *Collector) reading() *reading {
	oldest := time.Now().Add(-c.config.MaxAge)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last.end.Before(oldest) {
		c.last = c.read(c.last.failures)
	}
	return c.last
}

func (c *Collector) read(failures int) *reading {
	ctx, cancel := context.WithTimeout(context.Background(), c.config.Timeout)
	defer cancel()
	start := time.Now()
	r := &reading{dueWithin: c.config.DueWithin}
	var all sync.WaitGroup // at once, since they may be on several masters, of which one hangs
	all.Go(func() { r.behind, r.behindFor, r.noSchedules = c.config.Admin.SchedulesBehind(ctx) })
	all.Go(func() { r.inbox, r.noInbox = c.config.Admin.Inbox(ctx) })
	topics, err := c.config.Admin.Stats(ctx, admin.StatsOptions{DueWithin: c.config.DueWithin})
	all.Wait()
	r.fold(topics, c.config.MaxPlaces)
	r.err = errors.Join(err, r.noSchedules, r.noInbox)
	r.failures = failures
	if r.err != nil {
		r.failures++
	}
	r.end = time.Now()
	r.took = r.end.Sub(start)
	return r
}

// fold gives the first topics, with all their groups, labels of their own, and adds up the others. A topic whose
// groups do not all fit is one of the others: without them, it would look as if nobody subscribed.
func (r *reading) fold(topics []admin.TopicStats, limit int) {
	r.topics, r.groups = map[string]*admin.TopicStats{}, map[[2]string]*admin.GroupStats{}
	own, ownGroups := 0, 0
	for _, t := range topics {
		topic, fits := label(t.Topic), own < limit && ownGroups+len(t.Groups) <= limit
		if fits {
			own, ownGroups = own+1, ownGroups+len(t.Groups)
		} else {
			topic = Other
		}
		addTopic(r.topics, topic, t)
		for _, g := range t.Groups {
			group := label(g.Group)
			if !fits {
				group = Other
			}
			addGroup(r.groups, [2]string{topic, group}, g)
		}
	}
}

func addTopic(to map[string]*admin.TopicStats, topic string, t admin.TopicStats) {
	sum := to[topic]
	if sum == nil {
		to[topic] = &t
		return
	}
	sum.Partitions += t.Partitions
	sum.Add(t.Counts)
	sum.Keys += t.Keys
	sum.Overdue = max(sum.Overdue, t.Overdue)
	for i, n := range t.DueWithin {
		sum.DueWithin[i] += n
	}
}

// addGroup adds a group. Some are paused or retired together only if all are.
func addGroup(to map[[2]string]*admin.GroupStats, at [2]string, g admin.GroupStats) {
	sum := to[at]
	if sum == nil {
		to[at] = &g
		return
	}
	sum.Add(g.Counts)
	sum.LiveConsumers += g.LiveConsumers
	sum.HaltedKeys += g.HaltedKeys
	sum.Overdue = max(sum.Overdue, g.Overdue)
	if g.Pause == nil {
		sum.Pause = nil
	}
	if g.State == admin.GroupActive {
		sum.State = g.State
	}
}
