package redisdelay

import (
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// SubscriberConfig configures a Subscriber. Only Client is required.
type SubscriberConfig struct {
	// Client is a go-redis client: standalone, Sentinel or Cluster, or a type that embeds
	// one. A redis.Ring is refused. The caller owns it: it must outlive the Subscriber,
	// whose Close leaves it open. Besides the client's connections, each subscription opens
	// one for each partition.
	Client redis.UniversalClient

	// Prefix starts the name of every key. Publishers and subscribers that share
	// messages share it. It must not contain braces. Default: DefaultPrefix.
	Prefix string

	// Unmarshaler decodes messages. Metadata that a middleware changes together with the
	// delay is kept for the next delivery, whatever the Unmarshaler.
	// Default: DefaultMarshaler.
	Unmarshaler Unmarshaler

	// ConsumerGroup shares the messages of a topic among its subscribers; every
	// group gets each message. Broadcast makes each Subscribe a group of its own, which
	// an empty one means in watermill-redisstream. Default: DefaultConsumerGroup.
	ConsumerGroup string

	// GroupExpiry ends the group in a topic when it has had no live subscription there for
	// that long: what it holds is freed, and Subscribe begins it anew. Any publisher or
	// subscription of the topic notices within some seconds. A subscription counts as alive
	// for LeaseDuration or two PollIntervals after its last sign of life, whichever is
	// longer, and so long the group lasts in any case. For subscribers that differ, the last
	// Subscribe or SubscribeInitialize decides. At least 1s. Default: 0, never; for
	// Broadcast 50s, so that nothing is left a minute after a crash.
	GroupExpiry time.Duration

	// Consumer names this subscriber for people who look into Redis. It need not be
	// unique. Default: the host name.
	Consumer string

	// MaxInFlight is how many messages of one subscription may be handed out and
	// not yet acked or nacked, at most 1,000. More than 1 is for readers that handle
	// messages concurrently, as Watermill's Router does: it offers them that many
	// messages at once, and gives up order. Default: 1.
	MaxInFlight int

	// LeaseDuration is how long a message stays with a consumer that has gone
	// silent. A live consumer extends its leases every third of it, so a handler may
	// take longer. At least 100ms. Default: 30s.
	LeaseDuration time.Duration

	// NackDelay is the time from a Nack to the next delivery; attempt is 1 after
	// the first delivery. A delay below MinRedeliveryDelay is raised to it. It must be
	// safe for concurrent use; see Backoff. Default: 100ms doubled with each attempt and
	// lengthened by up to half, at most 1 minute; not lengthened in package redisdelaytest,
	// so that each run of a test has the same times.
	NackDelay func(attempt int) time.Duration

	// MaxDeliveries makes a message a dead letter of the group after that many
	// deliveries without an Ack. With the default NackDelay, 5 deliveries last
	// 2 seconds, 10 a minute and 20 eleven minutes. A message that was held ahead and
	// given back was not delivered. A message that kills its consumer at once is
	// delivered at most once more than this. Default: 0, no limit.
	MaxDeliveries int

	// GroupLimits limits the whole group: its consumers together, where MaxInFlight limits one
	// subscription. Subscribe and SubscribeInitialize set them, and a subscription whose group
	// begins anew; they stay until another Subscriber or a Control sets others. Default: none
	// are set, and those that the group has stay.
	GroupLimits GroupLimits

	// MaxBufferBytes is how many bytes of messages a subscription may hold that no
	// handler has yet. At least 1 MiB; one message may be larger. Default: 16 MiB.
	MaxBufferBytes int

	// PollInterval is how often an idle subscription asks for messages without a
	// notification. It limits the delay when notifications are lost without a sign; while it is
	// known that they are, an idle subscription asks every 150ms for about 10s first. At least
	// 100ms. Default: 5s; a year in package redisdelaytest, where none is lost.
	PollInterval time.Duration

	// CloseTimeout is how long Close, or the end of a Subscribe context, lets
	// handlers finish before it cancels their contexts. At least 1ms. Default: 10s.
	CloseTimeout time.Duration

	// Observer is told what happens to messages, of calls to Redis, and of failures, for
	// metrics and traces. Use observe.Join for several. The logger given to NewSubscriber
	// is told as well. Default: none, which costs nothing.
	Observer observe.Observer
}

func defaultPoll(client redis.UniversalClient) time.Duration {
	if script.OptionsOf(client).LosesNothing {
		return 365 * 24 * time.Hour
	}
	return 5 * time.Second
}

func (c *SubscriberConfig) setDefaults() {
	setDefault(&c.Prefix, DefaultPrefix)
	setDefault(&c.ConsumerGroup, DefaultConsumerGroup)
	if c.ConsumerGroup == Broadcast {
		setDefault(&c.GroupExpiry, broadcastExpiry)
	}
	setDefault(&c.MaxInFlight, 1)
	setDefault(&c.LeaseDuration, 30*time.Second)
	setDefault(&c.MaxBufferBytes, 16<<20)
	setDefault(&c.PollInterval, defaultPoll(c.Client))
	setDefault(&c.CloseTimeout, 10*time.Second)
	c.GroupLimits.setDefaults()
	if c.Unmarshaler == nil {
		c.Unmarshaler = DefaultMarshaler{}
	}
	if c.Consumer == "" {
		c.Consumer, _ = os.Hostname() // only a name: empty will do
	}
	if c.NackDelay == nil {
		c.NackDelay = defaultNackDelay
		if script.OptionsOf(c.Client).LosesNothing {
			c.NackDelay = steadyNackDelay
		}
	}
}

// defaultNackDelay varies, so that messages that failed together do not come back together.
func defaultNackDelay(attempt int) time.Duration {
	step := steadyNackDelay(attempt)
	return min(time.Minute, step+rand.N(step/2))
}

func steadyNackDelay(attempt int) time.Duration {
	return backoff.Exponential(MinRedeliveryDelay, time.Minute, attempt-1)
}

// Validate reports the first field that cannot be used, as a *ConfigError. A
// zero field is replaced by its default first.
func (c SubscriberConfig) Validate() error {
	c.setDefaults()
	if err := validateShared(c.Client, c.Prefix); err != nil {
		return err
	}
	if c.MaxInFlight < 1 || c.MaxInFlight > queue.MaxMessages {
		return &ConfigError{"MaxInFlight", fmt.Sprintf("is %d, want 1 to %d", c.MaxInFlight, queue.MaxMessages)}
	}
	if c.MaxDeliveries < 0 {
		return &ConfigError{"MaxDeliveries", fmt.Sprintf("is %d, want 0 or more", c.MaxDeliveries)}
	}
	if err := c.GroupLimits.validate(); err != nil {
		return err
	}
	if c.MaxBufferBytes < 1<<20 {
		return &ConfigError{"MaxBufferBytes", fmt.Sprintf("is %d, want at least %d (1 MiB)", c.MaxBufferBytes, 1<<20)}
	}
	if err := validateDuration("LeaseDuration", c.LeaseDuration, 100*time.Millisecond); err != nil {
		return err
	}
	if err := validateDuration("PollInterval", c.PollInterval, 100*time.Millisecond); err != nil {
		return err
	}
	if c.GroupExpiry != 0 {
		if err := validateDuration("GroupExpiry", c.GroupExpiry, time.Second); err != nil {
			return err
		}
	}
	return validateDuration("CloseTimeout", c.CloseTimeout, time.Millisecond)
}
