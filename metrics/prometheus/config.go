package redisdelayprom

import (
	"fmt"
	"time"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
)

const (
	// DefaultMaxTopics is how many topics have series of their own by default.
	DefaultMaxTopics = 1000

	// DefaultMaxGroups is how many consumer groups of a topic have series of their own by
	// default. Each broadcast subscriber is a group.
	DefaultMaxGroups = 100

	// DefaultMaxAge is for how long a Backlog shows what it has read, by default.
	DefaultMaxAge = 10 * time.Second

	// DefaultTimeout is how long a scrape waits for a Backlog, by default: less than the 10 s
	// after which Prometheus gives a scrape up.
	DefaultTimeout = 5 * time.Second

	leastTimeout = 10 * time.Millisecond

	// Other is the topic, or group, of what is beyond MaxTopics or MaxGroups.
	Other = "other"
)

// Config configures Metrics. The zero value is ready to use.
type Config struct {
	// MaxTopics is how many topics have series of their own: the first that come. All
	// others share those of topic "other". Default: DefaultMaxTopics.
	MaxTopics int

	// MaxGroups is how many consumer groups of a topic have series of their own: the first
	// that come. All others share those of group "other". Default: DefaultMaxGroups.
	MaxGroups int

	// ByPartition adds the label partition to what subscriptions do with messages. It
	// multiplies these series.
	ByPartition bool
}

func (c *Config) setDefaults() { setLimits(&c.MaxTopics, &c.MaxGroups) }

func (c Config) validate() error { return checkLimits(c.MaxTopics, c.MaxGroups) }

// BacklogConfig configures a Backlog.
type BacklogConfig struct {
	// Admin reads what is in Redis. Required.
	Admin *admin.Admin

	// MaxAge is for how long what was read is shown to further scrapes. Negative: each
	// scrape reads. Default: DefaultMaxAge.
	MaxAge time.Duration

	// Timeout is how long a scrape waits for the reading, at least 10 ms. Default:
	// DefaultTimeout.
	Timeout time.Duration

	// MaxTopics is how many topics have series of their own: the first by name. All others
	// are added up as topic "other". Default: DefaultMaxTopics.
	MaxTopics int

	// MaxGroups is how many consumer groups of a topic have series of their own: the first by
	// name. All others are added up as group "other". Default: DefaultMaxGroups.
	MaxGroups int
}

func (c *BacklogConfig) setDefaults() {
	setLimits(&c.MaxTopics, &c.MaxGroups)
	if c.MaxAge == 0 {
		c.MaxAge = DefaultMaxAge
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
}

func (c BacklogConfig) validate() error {
	switch {
	case c.Admin == nil:
		return &redisdelay.ConfigError{Field: "Admin", Problem: "is nil"}
	case c.Timeout < leastTimeout:
		problem := fmt.Sprintf("is %s, want at least %s", c.Timeout, leastTimeout)
		return &redisdelay.ConfigError{Field: "Timeout", Problem: problem}
	}
	return checkLimits(c.MaxTopics, c.MaxGroups)
}

func setLimits(topics, groups *int) {
	if *topics == 0 {
		*topics = DefaultMaxTopics
	}
	if *groups == 0 {
		*groups = DefaultMaxGroups
	}
}

func checkLimits(topics, groups int) error {
	switch {
	case topics < 1:
		return &redisdelay.ConfigError{Field: "MaxTopics", Problem: fmt.Sprintf("is %d, want at least 1", topics)}
	case groups < 1:
		return &redisdelay.ConfigError{Field: "MaxGroups", Problem: fmt.Sprintf("is %d, want at least 1", groups)}
	}
	return nil
}
