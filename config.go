package redisdelay

import (
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/notify"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

const (
	// DefaultPrefix is the Prefix of a config that sets none.
	DefaultPrefix = "redisdelay"

	// DefaultConsumerGroup is the group of a Subscriber that names none.
	DefaultConsumerGroup = "default"

	// Broadcast as the ConsumerGroup of a Subscriber gives every subscription all messages. Each call of Subscribe
	// makes a group with a name of its own (Delivery.Group). The group gets each message of the topic that was not
	// given to the groups before Subscribe. It ends with the subscription, or GroupExpiry after a crash. Use it for
	// messages that every instance of a program needs, such as updates of caches and websockets. Each group costs Redis
	// a little for each message. A topic can have 100 groups. While a topic has no group at all, its messages wait.
	Broadcast = "<broadcast>"

	// MinRedeliveryDelay is the shortest time between a Nack and the next delivery,
	// even if NackDelay or the delay metadata of a middleware asks for less. It keeps
	// a message that always fails from occupying its consumers.
	MinRedeliveryDelay = 100 * time.Millisecond
)

// PublisherConfig configures a Publisher. Only Client is required. No duration may be above 100 years.
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
	// 192. Redis keeps the number, and it only grows: subscribers are notified, other
	// publishers notice within 5s, idle ones from their second Publish on. More than 1 is for
	// Redis Cluster, where 3, 6, 12, 24 … spread a topic evenly over the masters. Default: 1.
	Partitions int

	// PartitionKey chooses a message's partition: messages with the same key share
	// one, and keep their order for a single subscriber with MaxInFlight 1, unless
	// the number of partitions is raised between them. "" means no key; nil, the
	// default, means that no message has one. The messages of a call without a key
	// share one partition, and calls rotate through the partitions. SetOrderingKey
	// and, after it, SetKey take precedence. It must be safe for concurrent use.
	PartitionKey func(topic string, msg *message.Message) string

	// OnDuplicate applies to messages that carry a key (SetKey) and no policy of their own
	// (SetOnDuplicate). Default: RejectDuplicate.
	OnDuplicate DuplicatePolicy

	// DeduplicationWindow is for how long after Publish the key of a message (SetKey) stays in use,
	// even if its message has been acked or has become a dead letter by then: so Publish can be
	// called again after ErrOutcomeUnknown, or an importer can run twice. Whole milliseconds,
	// rounded up, by Redis's clock; at least 1ms and at most 100 years. A duplicate does not
	// prolong it, and Cancel ends it. It binds all publishers of a topic with RejectDuplicate or
	// IgnoreDuplicate, whatever window they have themselves. Redis keeps each key, and about 100
	// bytes more, for that long. With ReplaceDuplicate it is an error, since that stores every
	// message. Default: 0, which means until all groups are done with the message.
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
	// messages ends earlier. It bounds Cancel, Reschedule and Close, too. At least 10ms. Default: 10s.
	PublishTimeout time.Duration

	// MaxPending limits the messages of PublishAsync calls that have no outcome yet, for all topics
	// together. At the limit, or at 16 MiB of encoded messages, PublishAsync waits. A call may exceed
	// both if no other is pending. Default: 4,000, with which one goroutine is as fast as it gets.
	MaxPending int

	// WaitReplicas is how many replicas must have received a message before Publish
	// returns nil; with fewer it returns a *ReplicationError. Replication is
	// asynchronous, so without this a failover loses what the new master has not
	// received (docs/operate/scaling.md). See WAIT in Redis's documentation. Default: 0.
	WaitReplicas int

	// WaitTimeout is how long Publish waits for replicas, in whole milliseconds: at least
	// 1ms, and less than the client's ReadTimeout. Default: 1s. It has no effect without
	// WaitReplicas.
	WaitTimeout time.Duration

	// Observer receives events about Publish, Cancel and Reschedule calls, calls to Redis, and outages, for metrics and
	// traces. Use observe.Join for several. The logger given to NewPublisher reports them as well. Default: none, which
	// costs nothing.
	Observer observe.Observer
}

func (c *PublisherConfig) setDefaults() {
	setDefault(&c.Prefix, DefaultPrefix)
	setDefault(&c.Partitions, 1)
	setDefault(&c.OnDuplicate, RejectDuplicate)
	setDefault(&c.MaxMessageBytes, 4<<20)
	setDefault(&c.PublishTimeout, 10*time.Second)
	setDefault(&c.MaxPending, 4000)
	setDefault(&c.WaitTimeout, time.Second)
	if c.Marshaler == nil {
		c.Marshaler = DefaultMarshaler{}
	}
	c.Delay.AllowNoDelay = true
}

// Validate reports the first invalid field as a *ConfigError. A zero field counts as its default.
func (c PublisherConfig) Validate() error {
	c.setDefaults()
	if err := validateShared(c.Client, c.Prefix); err != nil {
		return err
	}
	if !c.OnDuplicate.known() {
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
	if c.MaxPending < 0 {
		return &ConfigError{"MaxPending", fmt.Sprintf("is %d, want at least 1", c.MaxPending)}
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

// Validate reports the first invalid field as a *ConfigError.
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

// SubscriberConfig configures a Subscriber. Only Client is required. No duration may be above 100 years.
type SubscriberConfig struct {
	// Client is a go-redis client: standalone, Sentinel or Cluster, or a type that embeds
	// one. A redis.Ring is refused. The caller owns it: it must outlive the Subscriber,
	// whose Close leaves it open. Besides the client's connections, all subscriptions of a
	// client share one for notifications to each server.
	Client redis.UniversalClient

	// Prefix starts the name of every key. Publishers and subscribers that share
	// messages share it. It must not contain braces. Default: DefaultPrefix.
	Prefix string

	// Unmarshaler decodes messages. Metadata that a middleware changes together with the
	// delay is kept for the next delivery, whatever the Unmarshaler.
	// Default: DefaultMarshaler.
	Unmarshaler Unmarshaler

	// ConsumerGroup shares the messages of a topic among its subscribers; every group gets each
	// message. Broadcast makes each Subscribe a group of its own, as an empty ConsumerGroup does in
	// watermill-redisstream. AllGroups is an error. Default: DefaultConsumerGroup.
	ConsumerGroup string

	// GroupExpiry ends the group in a topic when it has had no live subscription there for that long: its messages, waiting
	// and dead, are deleted, and the next Subscribe starts an empty group. A subscription is alive for up to a minute after
	// its last call, with the defaults (docs/use/groups.md); the group lasts at least that long. Any publisher or
	// subscription of the topic ends it, within 15s, or within 45s if all are idle. If subscribers of the group differ,
	// the last Subscribe or SubscribeInitialize decides. At least 1s. Default: 0, which means never. For Broadcast: 50s,
	// so a group is gone within a minute and a half of a crash.
	GroupExpiry time.Duration

	// Consumer names this subscriber for people who look into Redis. It need not be
	// unique. Default: the host name.
	Consumer string

	// MaxInFlight is how many messages of one subscription may be handed out and
	// not yet acked or nacked, at most 1,000. More than 1 is for readers that handle
	// messages concurrently, as Watermill's Router does: it offers them that many
	// messages at once, and gives up order. Default: 1.
	MaxInFlight int

	// LeaseDuration is how long a message stays with a consumer that no longer calls Redis. A live consumer extends its
	// leases every third of it, so a handler may take longer. At least 100ms. Default: 30s.
	LeaseDuration time.Duration

	// NackDelay is the time from a Nack to the next delivery; attempt is 1 after
	// the first delivery. A delay below MinRedeliveryDelay is raised to it. A delay that a
	// middleware sets in the metadata, or Defer, takes precedence. NackDelay must be
	// safe for concurrent use; see Backoff. Default: 100ms doubled with each attempt and
	// lengthened by up to half, at most 1 minute; not lengthened in package redisdelaytest,
	// so that each run of a test has the same times.
	NackDelay func(attempt int) time.Duration

	// MaxDeliveries makes a message a dead letter of the group after that many deliveries without an Ack. With the
	// default NackDelay, 5 deliveries last 2 seconds, 10 a minute and 20 eleven minutes. A message that was prefetched
	// and returned unseen does not count as delivered. A message that kills its consumer at once may be delivered once
	// more than this. With Broadcast, the dead letters are deleted with
	// the subscription's group. Default: 0, no limit.
	MaxDeliveries int

	// GroupLimits limits all consumers of the group together, whereas MaxInFlight limits one subscription. Subscribe,
	// SubscribeInitialize and a subscription that recreates its group set them; they stay until another Subscriber or a
	// Control sets others. Default: none are set, and those that the group has stay.
	GroupLimits GroupLimits

	// OnExpired says what to do with messages that have expired (SetExpiration). Default: BuryExpired.
	OnExpired ExpiryPolicy

	// MaxBufferBytes limits the messages that a subscription has prefetched, and that no handler has
	// yet, by the bytes of their bodies. At least 1 MiB; one message may be larger. Default: 16 MiB.
	MaxBufferBytes int

	// PollInterval is how often a subscription polls Redis while it receives no notifications, and so how late a message may be
	// then. When notifications stop, it polls every 150ms for about 10s, and then less and less often, down to every
	// PollInterval.
	//
	// While notifications work, which PingInterval checks, an idle subscription polls every 30s, or twice in a GroupExpiry
	// below a minute, or every PollInterval if that is longer. With a PollInterval below PingInterval + 3s, it always polls that
	// often. At least 100ms. Default: 5s; a year in package redisdelaytest, which loses no notification.
	PollInterval time.Duration

	// PingInterval is how often a heartbeat checks that notifications arrive. Subscriptions of one Client with the same
	// PingInterval share a connection for notifications and its heartbeats. At least 100ms. Default: 2s; a year in package
	// redisdelaytest.
	PingInterval time.Duration

	// CloseTimeout is how long Stop, Close, or the end of a Subscribe context, lets
	// handlers finish before it cancels their contexts. At least 1ms. Default: 10s.
	CloseTimeout time.Duration

	// Observer receives events about messages, calls to Redis, and failures, for metrics and traces. Use observe.Join
	// for several. The logger given to NewSubscriber reports them as well. Default: none, which costs nothing.
	Observer observe.Observer
}

// lossless is a client that loses no notifications, as that of package redisdelaytest. Its subscribers need no polls and heartbeats,
// which would make a simulated month take minutes instead of milliseconds.
type lossless interface{ LosesNoNotifications() }

const year = 365 * 24 * time.Hour

func (c *SubscriberConfig) setDefaults() {
	setDefault(&c.Prefix, DefaultPrefix)
	setDefault(&c.ConsumerGroup, DefaultConsumerGroup)
	if c.ConsumerGroup == Broadcast {
		setDefault(&c.GroupExpiry, broadcastExpiry)
	}
	setDefault(&c.MaxInFlight, 1)
	setDefault(&c.LeaseDuration, 30*time.Second)
	setDefault(&c.OnExpired, BuryExpired)
	setDefault(&c.MaxBufferBytes, 16<<20)
	poll, ping := 5*time.Second, notify.Interval
	if _, is := c.Client.(lossless); is {
		poll, ping = year, year
	}
	setDefault(&c.PollInterval, poll)
	setDefault(&c.PingInterval, ping)
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
	}
}

// defaultNackDelay varies, so that messages that failed together are not retried together.
func defaultNackDelay(attempt int) time.Duration {
	step := backoff.Exponential(MinRedeliveryDelay, time.Minute, attempt-1)
	return min(time.Minute, step+rand.N(step/2))
}

// Validate reports the first invalid field as a *ConfigError. A zero field counts as its default.
func (c SubscriberConfig) Validate() error {
	c.setDefaults()
	if err := validateShared(c.Client, c.Prefix); err != nil {
		return err
	}
	if c.ConsumerGroup == AllGroups {
		return &ConfigError{"ConsumerGroup", "is AllGroups, want the name of one group"}
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
	if c.OnExpired != BuryExpired && c.OnExpired != DropExpired {
		return &ConfigError{"OnExpired", fmt.Sprintf("is %q, want %q or %q", c.OnExpired, BuryExpired, DropExpired)}
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
	if err := validateDuration("PingInterval", c.PingInterval, 100*time.Millisecond); err != nil {
		return err
	}
	if c.GroupExpiry != 0 {
		if err := validateDuration("GroupExpiry", c.GroupExpiry, time.Second); err != nil {
			return err
		}
	}
	return validateDuration("CloseTimeout", c.CloseTimeout, time.Millisecond)
}

// maxDuration keeps sums of durations from overflowing.
const maxDuration = 100 * 365 * 24 * time.Hour

// ConfigError says which field of a config, or which argument of a call, is invalid, and why.
type ConfigError struct {
	Field   string
	Problem string
}

func (e *ConfigError) Error() string { return "redisdelay: " + e.Field + " " + e.Problem }

func validateShared(client redis.UniversalClient, prefix string) error {
	// A nil *redis.Client in the interface would panic at the first command.
	if v := reflect.ValueOf(client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return &ConfigError{"Client", "is nil"}
	}
	if _, err := queue.NewStore(client, prefix, observe.Observer{}); err != nil {
		return &ConfigError{"Client", err.Error()}
	}
	if strings.ContainsAny(prefix, "{}") {
		return &ConfigError{"Prefix", fmt.Sprintf("%q contains a brace", prefix)}
	}
	return nil
}

// validateDuration checks the bounds of a duration. A number without a unit counts
// nanoseconds, so a duration that is far too short was probably meant in another unit.
func validateDuration(field string, d, minimum time.Duration) error {
	switch {
	case d > maxDuration:
		return &ConfigError{field, fmt.Sprintf("is %s, want at most %s", d, maxDuration)}
	case d >= minimum:
		return nil
	}
	problem := fmt.Sprintf("is %s, want at least %s", d, minimum)
	switch {
	case d <= 0 || d >= time.Microsecond*100:
	case d < 100:
		problem += fmt.Sprintf(": did you mean %d*time.Second?", int64(d))
	default:
		problem += fmt.Sprintf(": did you mean %d*time.Millisecond?", int64(d))
	}
	return &ConfigError{field, problem}
}
