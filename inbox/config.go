package inbox

import (
	"cmp"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// Config configures an Inbox. Only Client is required.
type Config struct {
	// Client and Prefix are those of the topics, as in redisdelay.PublisherConfig. The caller closes the client. Run
	// uses one connection while it waits for entries.
	Client redis.UniversalClient
	Prefix string

	// Marshaler encodes the messages. Default: redisdelay.DefaultMarshaler.
	Marshaler redisdelay.Marshaler

	// Partitions is the minimum number of partitions of each topic, as in redisdelay.PublisherConfig. Default: 1.
	Partitions int

	// OnDuplicate is what happens to an entry whose key is in use. With redisdelay.RejectDuplicate, the default, it is
	// rejected.
	OnDuplicate redisdelay.DuplicatePolicy

	// MaxMessageBytes limits the size of an encoded message. Larger ones are rejected, as are entries whose fields
	// exceed it by more than 1 MiB. Default: 4 MiB.
	MaxMessageBytes int

	// LeaseDuration is how long a process may take for a batch before another process takes it over. Entries are stored
	// once even then, but a value below the time that a batch needs makes processes repeat each other's work. At least
	// 100ms. Default: 5s.
	LeaseDuration time.Duration

	// MaxRejected is about how many rejected entries Redis keeps, up to 64 KiB of each: 640 MiB with the default.
	// Default: 10,000.
	MaxRejected int

	// Observer receives stored and rejected entries (Published, for each partition), cancelled and rescheduled keys
	// (Changed), calls to Redis, and outages. Default: none.
	Observer observe.Observer
}

func (c *Config) setDefaults() {
	c.Prefix = cmp.Or(c.Prefix, redisdelay.DefaultPrefix)
	c.Partitions = cmp.Or(c.Partitions, 1)
	c.OnDuplicate = cmp.Or(c.OnDuplicate, redisdelay.RejectDuplicate)
	c.MaxMessageBytes = cmp.Or(c.MaxMessageBytes, 4<<20)
	c.LeaseDuration = cmp.Or(c.LeaseDuration, 5*time.Second)
	c.MaxRejected = cmp.Or(c.MaxRejected, 10_000)
	if c.Marshaler == nil {
		c.Marshaler = redisdelay.DefaultMarshaler{}
	}
}

// Validate reports the first invalid field as a *redisdelay.ConfigError. A zero field counts as its default.
func (c Config) Validate() error {
	c.setDefaults()
	shared := redisdelay.PublisherConfig{
		Client: c.Client, Prefix: c.Prefix, Partitions: c.Partitions, OnDuplicate: c.OnDuplicate, MaxMessageBytes: c.MaxMessageBytes,
	}
	if err := shared.Validate(); err != nil {
		return err
	}
	switch {
	case c.LeaseDuration < 100*time.Millisecond:
		return &redisdelay.ConfigError{Field: "LeaseDuration", Problem: fmt.Sprintf("is %s, want at least 100ms", c.LeaseDuration)}
	case c.MaxRejected < 1:
		return &redisdelay.ConfigError{Field: "MaxRejected", Problem: fmt.Sprintf("is %d, want at least 1", c.MaxRejected)}
	}
	return nil
}
