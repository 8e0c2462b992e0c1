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
	// DefaultMaxPlaces is the default of MaxPlaces. A group of a topic has 77 series in Metrics and 11 in a Collector.
	DefaultMaxPlaces = 2000

	// DefaultMaxAge is the default of CollectorConfig.MaxAge.
	DefaultMaxAge = 10 * time.Second

	// DefaultTimeout is the default of CollectorConfig.Timeout, less than the 10s after which Prometheus ends a scrape.
	DefaultTimeout = 5 * time.Second

	// MaxDueWithin is the maximum number of times in CollectorConfig.DueWithin.
	MaxDueWithin = 10

	minTimeout = 10 * time.Millisecond

	// Other is the topic, and the group, of all that exceed MaxPlaces.
	Other = "other"
)

// Config configures Metrics. The zero value is ready to use.
type Config struct {
	// MaxPlaces is the maximum number of topics with series of their own, and of pairs of a topic and a consumer group.
	// Later ones are added to topic "other" and group "other". Each Broadcast subscription is a group. Default:
	// DefaultMaxPlaces.
	MaxPlaces int

	// ByPartition adds the label partition to the series of subscriptions, which multiplies them.
	ByPartition bool
}

func (c *Config) setDefaults() { setPlaces(&c.MaxPlaces) }

func (c Config) validate() error { return checkPlaces(c.MaxPlaces) }

// CollectorConfig configures a Collector.
type CollectorConfig struct {
	// Admin reads the data. Required.
	Admin *admin.Admin

	// MaxAge is how long scrapes share a reading of Redis. Negative: each scrape reads. Default: DefaultMaxAge.
	MaxAge time.Duration

	// Timeout is how long a scrape waits for a reading, at least 10ms. Default: DefaultTimeout.
	Timeout time.Duration

	// MaxPlaces is as in Config, except that the first names in alphabetical order have series of their own, and that a
	// topic whose groups exceed it is added to topic "other" as a whole. Default: DefaultMaxPlaces.
	MaxPlaces int

	// DueWithin has up to MaxDueWithin different times of whole milliseconds, at least 1s. For each, a topic has a
	// series of topic_due_within_messages, to scale consumers before a peak. Each takes Redis some 10 µs for each
	// partition. Default: none.
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
