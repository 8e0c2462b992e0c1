package redisdelayprom

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
)

const (
	// DefaultMaxPlaces is how many topics, and how many consumer groups of topics, have series
	// of their own by default. A group of a topic has 77 in Metrics and 11 in a Collector.
	DefaultMaxPlaces = 2000

	// DefaultMaxAge is for how long a Collector shows what it has read, by default.
	DefaultMaxAge = 10 * time.Second

	// DefaultTimeout is how long a scrape waits for a Collector, by default: less than the 10 s
	// after which Prometheus gives a scrape up.
	DefaultTimeout = 5 * time.Second

	// MaxDueWithin is the maximum number of times ahead in CollectorConfig.DueWithin.
	MaxDueWithin = 10

	minTimeout = 10 * time.Millisecond

	// Other is the topic, and the group, of what is beyond MaxPlaces.
	Other = "other"
)

// Config configures Metrics. The zero value is ready to use.
type Config struct {
	// MaxPlaces is how many topics have series of their own, and how many pairs of a topic
	// and a consumer group: the first that come. All others share those of topic "other", and
	// of its group "other". Each broadcast subscriber is a group. Default: DefaultMaxPlaces.
	MaxPlaces int

	// ByPartition adds the label partition to what subscriptions do with messages. It
	// multiplies these series.
	ByPartition bool
}

func (c *Config) setDefaults() { setPlaces(&c.MaxPlaces) }

func (c Config) validate() error { return checkPlaces(c.MaxPlaces) }

// CollectorConfig configures a Collector.
type CollectorConfig struct {
	// Admin reads what is in Redis. Required.
	Admin *admin.Admin

	// MaxAge is for how long what was read is shown to further scrapes. Negative: each
	// scrape reads. Default: DefaultMaxAge.
	MaxAge time.Duration

	// Timeout is how long a scrape waits for the reading, at least 10 ms. Default:
	// DefaultTimeout.
	Timeout time.Duration

	// MaxPlaces is how many topics have series of their own, and how many pairs of a topic
	// and a consumer group: the first by name. All others, and topics whose groups do not all
	// fit, are added up as topic "other", and its group "other". Each broadcast subscriber is a group. Default: DefaultMaxPlaces.
	MaxPlaces int

	// DueWithin are times ahead, of whole milliseconds, each at least a second and none twice. For each, a topic has a
	// series of topic_due_within_messages: what to scale consumers by before a storm. Up to MaxDueWithin. Each costs a
	// reading one more call of some 10 µs for each partition of all topics. Default: none.
	DueWithin []time.Duration
}

func (c *CollectorConfig) setDefaults() {
	c.DueWithin = slices.Clone(c.DueWithin)
	setPlaces(&c.MaxPlaces)
	if c.MaxAge == 0 {
		c.MaxAge = DefaultMaxAge
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
}

func (c CollectorConfig) validate() error {
	switch {
	case c.Admin == nil:
		return &redisdelay.ConfigError{Field: "Admin", Problem: "is nil"}
	case c.Timeout < minTimeout:
		problem := fmt.Sprintf("is %s, want at least %s", c.Timeout, minTimeout)
		return &redisdelay.ConfigError{Field: "Timeout", Problem: problem}
	}
	return cmp.Or(checkDueWithin(c.DueWithin), checkPlaces(c.MaxPlaces))
}

func checkDueWithin(list []time.Duration) error {
	problem := ""
	if len(list) > MaxDueWithin {
		problem = fmt.Sprintf("has %d times, want at most %d", len(list), MaxDueWithin)
	}
	for i, d := range list {
		switch {
		case d < time.Second || d%time.Millisecond != 0:
			problem = fmt.Sprintf("has %s, want whole milliseconds, at least 1s", d)
		case slices.Contains(list[:i], d):
			problem = fmt.Sprintf("has %s twice", d)
		}
	}
	if problem == "" {
		return nil
	}
	return &redisdelay.ConfigError{Field: "DueWithin", Problem: problem}
}

func setPlaces(maxPlaces *int) {
	if *maxPlaces == 0 {
		*maxPlaces = DefaultMaxPlaces
	}
}

func checkPlaces(maxPlaces int) error {
	if maxPlaces < 1 {
		return &redisdelay.ConfigError{Field: "MaxPlaces", Problem: fmt.Sprintf("is %d, want at least 1", maxPlaces)}
	}
	return nil
}
