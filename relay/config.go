package relay

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// DefaultConsumerGroup is the consumer group of relays, in each topic.
const DefaultConsumerGroup = "relay"

// PublisherConfig configures a Publisher. Target and Delayed are required.
type PublisherConfig struct {
	// Target publishes messages that are due, to topics of the same names. It must not be a redisdelay.Publisher of the
	// same Redis and Prefix.
	Target message.Publisher

	// Delayed stores messages with a delay. Its default delay (redisdelay.PublisherConfig.Delay) applies. The keys
	// (redisdelay.SetKey) of messages without a delay have no effect.
	Delayed *redisdelay.Publisher

	// ConsumerGroup is that of the Relay. Default: DefaultConsumerGroup.
	ConsumerGroup string
}

func (c *PublisherConfig) setDefaults() { setDefault(&c.ConsumerGroup, DefaultConsumerGroup) }

// Validate reports the first invalid field as a *redisdelay.ConfigError.
func (c PublisherConfig) Validate() error {
	c.setDefaults()
	switch {
	case isNil(c.Target):
		return &redisdelay.ConfigError{Field: "Target", Problem: "is nil"}
	case c.Delayed == nil:
		return &redisdelay.ConfigError{Field: "Delayed", Problem: "is nil"}
	case readByRelay(c.Target, c.Delayed.Config().Client, c.Delayed.Config().Prefix):
		return errReadByRelay
	default:
		return validateGroup(c.ConsumerGroup)
	}
}

// Config configures a Relay. Client, Topics, and one of Target and Streams are required.
type Config struct {
	// Client, Prefix and Unmarshaler are those of the delayed messages, as in redisdelay.SubscriberConfig. Brokers that
	// share a Redis and have topics of the same name need different Prefixes. The caller closes the client.
	Client      redis.UniversalClient
	Prefix      string
	Unmarshaler redisdelay.Unmarshaler

	// ConsumerGroup is that of the Publisher. Default: DefaultConsumerGroup.
	ConsumerGroup string

	// Target publishes messages that are due, to the topic of the same name. It must be safe for concurrent use. It
	// must not be a redisdelay.Publisher of the same Redis and Prefix, even behind a decorator, because the relay would
	// receive its own messages. The caller closes it, after Run and all calls of it have returned. Setting both Target
	// and Streams is an error.
	Target message.Publisher

	// Streams publishes messages that are due to Redis streams, as a redisstream.Publisher with this config does. With
	// the same Client as above, a message moves in one step, so that a crash cannot duplicate it (Relay.InOneStep). A
	// topic with the name of a key of this library is an error.
	Streams *redisstream.PublisherConfig

	// Topics are the topics to relay.
	Topics []string

	// BatchSize is the maximum number of messages in one Publish call of the target, 1 to 500. A call does not wait for
	// more messages. Default: 100.
	BatchSize int

	// Permanent reports whether an error of the target is about the message and will not go away. The message then
	// is dead-lettered at once, so Permanent must return false for an outage. It must be safe for concurrent use;
	// a panic counts as false. Default: always false.
	Permanent func(error) bool

	// MaxFailures is after how many failed attempts a message is dead-lettered. A failed attempt counts only if
	// the target has accepted another message of the topic since the previous one, so an outage of the whole target
	// does not count, but one of a part does. Each process counts for itself. The pauses between attempts grow from
	// 100ms to a minute. Default: 20, about twelve minutes.
	MaxFailures int

	// OnExpired is what happens to messages that have expired (redisdelay.SetExpiration). They are never published.
	// Default: redisdelay.BuryExpired.
	OnExpired redisdelay.ExpirationPolicy

	// LeaseDuration, PollInterval, PingInterval and CloseTimeout are as in redisdelay.SubscriberConfig, with the same
	// defaults. CloseTimeout applies to Publish calls of the target.
	LeaseDuration time.Duration
	PollInterval  time.Duration
	PingInterval  time.Duration
	CloseTimeout  time.Duration

	// Observer receives events about delayed messages. An ack says that the target has the message or, with InOneStep,
	// that the relay is done with it: it may have been cancelled, or another relay may have it. Default: none.
	Observer observe.Observer
}

func (c *Config) setDefaults() {
	setDefault(&c.ConsumerGroup, DefaultConsumerGroup)
	setDefault(&c.BatchSize, 100)
	setDefault(&c.MaxFailures, 20)
	if c.Permanent == nil {
		c.Permanent = func(error) bool { return false }
	}
}

// Validate reports the first invalid field as a *redisdelay.ConfigError. A zero field counts as its default.
func (c Config) Validate() error {
	c.setDefaults()
	if err := c.subscriber().Validate(); err != nil {
		return err
	}
	switch {
	case isNil(c.Target) == (c.Streams == nil):
		return &redisdelay.ConfigError{Field: "Target", Problem: "or Streams is needed, and not both"}
	case c.Streams != nil && isNil(c.Streams.Client):
		return &redisdelay.ConfigError{Field: "Streams", Problem: "has no Client"}
	case readByRelay(c.Target, c.Client, c.Prefix):
		return errReadByRelay
	case c.BatchSize < 1 || c.BatchSize > 500:
		return &redisdelay.ConfigError{Field: "BatchSize", Problem: fmt.Sprintf("is %d, want 1 to 500", c.BatchSize)}
	case c.MaxFailures < 1:
		return &redisdelay.ConfigError{Field: "MaxFailures", Problem: fmt.Sprintf("is %d, want 1 or more", c.MaxFailures)}
	}
	if err := validateGroup(c.ConsumerGroup); err != nil {
		return err
	}
	return c.validateTopics()
}

func (c Config) validateTopics() error {
	if len(c.Topics) == 0 {
		return &redisdelay.ConfigError{Field: "Topics", Problem: "is empty"}
	}
	for i, topic := range c.Topics {
		switch {
		case topic == "":
			return &redisdelay.ConfigError{Field: "Topics", Problem: "has an empty topic"}
		case slices.Contains(c.Topics[:i], topic):
			return &redisdelay.ConfigError{Field: "Topics", Problem: fmt.Sprintf("has %q twice", topic)}
		case c.overwrites(topic):
			return &redisdelay.ConfigError{
				Field: "Topics", Problem: fmt.Sprintf("has %q, the name of a key of this library, which a stream would overwrite", topic),
			}
		}
	}
	return nil
}

// subscriber returns the config of the subscriber.
func (c Config) subscriber() redisdelay.SubscriberConfig {
	return redisdelay.SubscriberConfig{
		Client: c.Client, Prefix: c.Prefix, Unmarshaler: c.Unmarshaler, ConsumerGroup: c.ConsumerGroup,
		LeaseDuration: c.LeaseDuration, PollInterval: c.PollInterval, PingInterval: c.PingInterval,
		CloseTimeout: c.CloseTimeout, OnExpired: c.OnExpired, Observer: c.Observer,
	}
}

// sameClient reports whether the streams are in the same Redis as the delayed messages.
func (c Config) sameClient() bool {
	return c.Streams != nil && sameClient(c.Client, c.Streams.Client)
}

func sameClient(a, b redis.UniversalClient) bool { return reflect.TypeOf(a).Comparable() && a == b }

func validateGroup(group string) error {
	switch group {
	case redisdelay.Broadcast:
		return &redisdelay.ConfigError{Field: "ConsumerGroup", Problem: "is Broadcast, which would publish each message once for each relay"}
	case redisdelay.AllGroups:
		return &redisdelay.ConfigError{Field: "ConsumerGroup", Problem: "is AllGroups, want the name of one group"}
	}
	return nil
}

// isNil reports whether an interface holds nothing, or a nil pointer.
func isNil(value any) bool {
	v := reflect.ValueOf(value)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// overwrites reports whether the stream of a topic would overwrite a key of this library.
func (c Config) overwrites(topic string) bool {
	_, streams := c.Target.(*redisstream.Publisher)
	return (streams || c.Streams != nil) && script.IsKey(topic)
}

var errReadByRelay = &redisdelay.ConfigError{
	Field:   "Target",
	Problem: "is a redisdelay.Publisher of the same Redis and Prefix, so the relay would receive its own messages; it needs another Prefix",
}

// readByRelay reports whether a target stores messages where a relay with this client and prefix reads them. It does not
// recognize a decorated target, or two addresses of one server.
func readByRelay(target message.Publisher, client redis.UniversalClient, prefix string) bool {
	p, is := target.(*redisdelay.Publisher)
	if !is {
		return false
	}
	setDefault(&prefix, redisdelay.DefaultPrefix)
	config := p.Config()
	return config.Prefix == prefix && sameRedis(config.Client, client)
}

// sameRedis reports whether two clients certainly use the same database.
func sameRedis(a, b redis.UniversalClient) bool {
	if sameClient(a, b) {
		return true
	}
	type single interface{ Options() *redis.Options }
	one, ok := a.(single)
	other, ok2 := b.(single)
	if !ok || !ok2 {
		return false
	}
	x, y := one.Options(), other.Options()
	return x.Network == y.Network && x.Addr == y.Addr && x.DB == y.DB && x.Addr != sentinelAddr
}

// sentinelAddr is the address in the options of every client that asks Sentinels.
const sentinelAddr = "FailoverClient"
