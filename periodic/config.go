package periodic

import (
	"cmp"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// Config configures a Scheduler. Only Client is required.
type Config struct {
	// Client and Prefix are those of the topics, as in redisdelay.PublisherConfig. The caller closes the client.
	Client redis.UniversalClient
	Prefix string

	// Marshaler is that of the topics. Default: redisdelay.DefaultMarshaler.
	Marshaler redisdelay.Marshaler

	// PollInterval is how often Run checks for schedules that other processes have changed or no longer run. At least
	// 100ms. Default: 10s.
	PollInterval time.Duration

	// Observer receives stored ticks (Ticked), calls to Redis, and outages. Default: none.
	Observer observe.Observer
}

func (c *Config) setDefaults() {
	c.Prefix = cmp.Or(c.Prefix, redisdelay.DefaultPrefix)
	c.PollInterval = cmp.Or(c.PollInterval, 10*time.Second)
	if c.Marshaler == nil {
		c.Marshaler = redisdelay.DefaultMarshaler{}
	}
}

// Validate reports the first invalid field as a *redisdelay.ConfigError. A zero field counts as its default.
func (c Config) Validate() error {
	c.setDefaults()
	shared := redisdelay.PublisherConfig{Client: c.Client, Prefix: c.Prefix}
	if err := shared.Validate(); err != nil {
		return err
	}
	if c.PollInterval < 100*time.Millisecond {
		return &redisdelay.ConfigError{Field: "PollInterval", Problem: fmt.Sprintf("is %s, want at least 100ms", c.PollInterval)}
	}
	return nil
}
