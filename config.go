package redisdelay

import (
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

const (
	// DefaultPrefix starts the name of every key in Redis.
	DefaultPrefix = "redisdelay"

	// DefaultConsumerGroup is the group of a Subscriber that names none.
	DefaultConsumerGroup = "default"

	// Broadcast is the ConsumerGroup of a Subscriber each of whose Subscribes is a group of its own,
	// with a name of its own (Delivery.Group). It gets each message of a topic that was not
	// given to the groups before Subscribe, and the group ends with the subscription, or
	// GroupExpiry after a crash. It is for what each instance of a program must know, such as caches and
	// websockets. Each group costs Redis a little for each message; a topic can have 1,000.
	// While a topic has no group at all, its messages wait.
	Broadcast = "<broadcast>"

	// MinRedeliveryDelay is the shortest time between a Nack and the next delivery,
	// even if NackDelay or the delay metadata of a middleware asks for less. It keeps
	// a message that always fails from occupying its consumers.
	MinRedeliveryDelay = 100 * time.Millisecond
)

// PublisherConfig configures a Publisher. Only Client is required.
type PublisherConfig struct {
	// Client is a go-redis client: standalone, Sentinel or Cluster, or a type that embeds
	// one. A redis.Ring is refused. The caller owns it: it must outlive the Publisher,
	// whose Close leaves it open.
	Client redis.UniversalClient

	// Prefix starts the name of every key. Publishers and subscribers that share
	// messages share it. It must not contain braces. Default: DefaultPrefix.
	Prefix string

	// Marshaler encodes messages. Default: DefaultMarshaler.
	Marshaler Marshaler

	// Partitions is the minimum number of partitions of each topic published to, 1 to
	// 256. Redis keeps the number, and it only grows: subscribers are notified, other
	// publishers notice within 5s. More than 1 is for Redis Cluster, where it spreads a
	// topic over the masters. Default: 1.
	Partitions int

	// PartitionKey chooses a message's partition: messages with the same key share
	// one, and keep their order for a single subscriber with MaxInFlight 1, unless
	// the number of partitions is raised between them. "" means no key; nil, the
	// default, means that no message has one. The messages of a call without a key
	// share one partition, and calls rotate through the partitions. The key of SetKey
	// takes precedence. It must be safe for concurrent use.
	PartitionKey func(topic string, msg *message.Message) string

	// OnDuplicate applies to messages that carry a key (SetKey).
	// Default: RejectDuplicate.
	OnDuplicate OnDuplicate

	// DeduplicationWindow is for how long after Publish the key of a message (SetKey) stays
	// in use, even if its message has been acked or has become a dead letter by then: so
	// Publish can be called again after ErrOutcomeUnknown, or an importer can run twice.
	// Whole milliseconds, rounded up, by Redis's clock; at least 1ms and at most 100 years.
	// A duplicate does not prolong it, and Cancel ends it. All publishers of a topic heed
	// it, under RejectDuplicate and IgnoreDuplicate, whatever window they have themselves.
	// Redis keeps each key, and about 100 bytes more, for that long. With ReplaceDuplicate
	// it is an error, since that stores every message. Default: 0, which means until all
	// groups are done with the message.
	DeduplicationWindow time.Duration

	// Delay configures the delay of messages that carry no delay metadata: it
	// comes from delay.WithContext or, failing that, DefaultDelayGenerator.
	// AllowNoDelay is always in force: a message without a delay is due at once.
	Delay delay.PublisherConfig

	// MaxMessageBytes limits the size of an encoded message. A larger one makes
	// Publish return ErrMessageTooLarge. Default: 4 MiB. At most 512 MiB, which
	// is Redis's own limit.
	MaxMessageBytes int

	// PublishTimeout is how long a Publish call tries, unless the context of the
	// messages ends earlier. At least 10ms. Default: 10s.
	PublishTimeout time.Duration

	// WaitReplicas is how many replicas must have received a message before Publish
	// returns nil; with fewer it returns a *ReplicationError. Replication is
	// asynchronous, so without this a failover loses what the new master has not
	// received (docs/operate/scaling.md). See WAIT in Redis's documentation. Default: 0.
	WaitReplicas int

	// WaitTimeout is how long Publish waits for replicas, in whole milliseconds: at least
	// 1ms, and less than the client's ReadTimeout. Default: 1s. It has no effect without
	// WaitReplicas.
	WaitTimeout time.Duration

	// Observer is told of Publish, Cancel and Reschedule calls, of calls to Redis, and of
	// outages, for metrics and traces. Use observe.Join for several. The logger given to
	// NewPublisher is told as well. Default: none, which costs nothing.
	Observer observe.Observer
}

func (c *PublisherConfig) setDefaults() {
	setDefault(&c.Prefix, DefaultPrefix)
	setDefault(&c.Partitions, 1)
	setDefault(&c.OnDuplicate, RejectDuplicate)
	setDefault(&c.MaxMessageBytes, 4<<20)
	setDefault(&c.PublishTimeout, 10*time.Second)
	setDefault(&c.WaitTimeout, time.Second)
	if c.Marshaler == nil {
		c.Marshaler = DefaultMarshaler{}
	}
	c.Delay.AllowNoDelay = true
}

// Validate reports the first field that cannot be used, as a *ConfigError. A
// zero field is replaced by its default first.
func (c PublisherConfig) Validate() error {
	c.setDefaults()
	if err := validateShared(c.Client, c.Prefix); err != nil {
		return err
	}
	switch c.OnDuplicate {
	case RejectDuplicate, IgnoreDuplicate, ReplaceDuplicate:
	default:
		return &ConfigError{"OnDuplicate", fmt.Sprintf("unknown value %q", c.OnDuplicate)}
	}
	if err := c.validateWindow(); err != nil {
		return err
	}
	if c.Partitions < 1 || c.Partitions > queue.MaxPartitions {
		return &ConfigError{"Partitions", fmt.Sprintf("is %d, want 1 to %d", c.Partitions, queue.MaxPartitions)}
	}
	if err := c.validateWait(); err != nil {
		return err
	}
	if c.MaxMessageBytes < 0 || c.MaxMessageBytes > 512<<20 {
		return &ConfigError{"MaxMessageBytes", fmt.Sprintf("is %d, want 1 to %d", c.MaxMessageBytes, 512<<20)}
	}
	return validateDuration("PublishTimeout", c.PublishTimeout, 10*time.Millisecond)
}

func (c PublisherConfig) validateWindow() error {
	switch {
	case c.DeduplicationWindow == 0:
		return nil
	case c.OnDuplicate == ReplaceDuplicate:
		return &ConfigError{"DeduplicationWindow", "is set, but OnDuplicate is ReplaceDuplicate, which stores every message"}
	default:
		return validateDuration("DeduplicationWindow", c.DeduplicationWindow, time.Millisecond)
	}
}

func (c PublisherConfig) validateWait() error {
	if c.WaitReplicas < 0 {
		return &ConfigError{"WaitReplicas", fmt.Sprintf("is %d, want 0 or more", c.WaitReplicas)}
	}
	if err := validateDuration("WaitTimeout", c.WaitTimeout, time.Millisecond); err != nil || c.WaitReplicas == 0 {
		return err
	}
	store, err := queue.NewStore(c.Client, c.Prefix, observe.Observer{})
	if err != nil {
		return &ConfigError{"Client", err.Error()}
	}
	if timeout := store.ReadTimeout(); timeout > 0 && c.WaitTimeout >= timeout {
		return &ConfigError{"WaitTimeout", fmt.Sprintf("is %s, want less than the client's ReadTimeout of %s", c.WaitTimeout, timeout)}
	}
	return nil
}

// ControlConfig configures a Control. Only Client is required.
type ControlConfig struct {
	// Client is as in PublisherConfig.
	Client redis.UniversalClient

	// Prefix is as in PublisherConfig. Default: DefaultPrefix.
	Prefix string
}

func (c *ControlConfig) setDefaults() { setDefault(&c.Prefix, DefaultPrefix) }

// Validate reports the first field that cannot be used, as a *ConfigError.
func (c ControlConfig) Validate() error {
	c.setDefaults()
	return validateShared(c.Client, c.Prefix)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
