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
	// Client and Prefix are those of the topics, as in redisdelay.PublisherConfig. The caller closes the client. Run holds one
	// connection while the inbox is empty.
	Client redis.UniversalClient
	Prefix string

	// Marshaler encodes the messages. Default: redisdelay.DefaultMarshaler.
	Marshaler redisdelay.Marshaler

	// Partitions is how many partitions each topic has at least, as in redisdelay.PublisherConfig. Default: 1.
	Partitions int

	// OnDuplicate says what becomes of an entry whose message key is in use. Under redisdelay.RejectDuplicate, which is the
	// default, it is refused.
	OnDuplicate redisdelay.DuplicatePolicy

	// MaxMessageBytes limits the size of an encoded message; an entry with a larger one is refused, and so is one whose fields
	// have 1 MiB more than that, whatever the Marshaler would make of it. Default: 4 MiB.
	MaxMessageBytes int

	// TakeOverAfter is for how long a batch belongs to the process that has read it. After that, others store it as well; each
	// entry is stored once all the same. At least 100ms. Default: 5s.
	TakeOverAfter time.Duration

	// KeepRefused is about how many refused entries are kept, up to 64 KiB of each: up to 640 MiB by default. Default: 10,000.
	KeepRefused int

	// Observer is told of what is stored in each partition, and of what is refused (Published), of keys that are cancelled or
	// rescheduled (Changed), of calls to Redis, and of outages. Default: none.
	Observer observe.Observer
}

func (c *Config) setDefaults() {
	c.Prefix = cmp.Or(c.Prefix, redisdelay.DefaultPrefix)
	c.Partitions = cmp.Or(c.Partitions, 1)
	c.OnDuplicate = cmp.Or(c.OnDuplicate, redisdelay.RejectDuplicate)
	c.MaxMessageBytes = cmp.Or(c.MaxMessageBytes, 4<<20)
	c.TakeOverAfter = cmp.Or(c.TakeOverAfter, 5*time.Second)
	c.KeepRefused = cmp.Or(c.KeepRefused, 10_000)
	if c.Marshaler == nil {
		c.Marshaler = redisdelay.DefaultMarshaler{}
	}
}

// Validate reports the first field that cannot be used, as a *redisdelay.ConfigError. A zero field is replaced by its
// default first.
func (c Config) Validate() error {
	c.setDefaults()
	shared := redisdelay.PublisherConfig{
		Client: c.Client, Prefix: c.Prefix, Partitions: c.Partitions, OnDuplicate: c.OnDuplicate, MaxMessageBytes: c.MaxMessageBytes,
	}
	if err := shared.Validate(); err != nil {
		return err
	}
	switch {
	case c.TakeOverAfter < 100*time.Millisecond:
		return &redisdelay.ConfigError{Field: "TakeOverAfter", Problem: fmt.Sprintf("is %s, want at least 100ms", c.TakeOverAfter)}
	case c.KeepRefused < 1:
		return &redisdelay.ConfigError{Field: "KeepRefused", Problem: fmt.Sprintf("is %d, want at least 1", c.KeepRefused)}
	}
	return nil
}
