package redisdelay

import (
	"cmp"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/internal/notify"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

const (
	// DefaultPrefix is the Prefix of a config that sets none.
	DefaultPrefix = "redisdelay"

	// DefaultConsumerGroup is the group of a Subscriber that names none.
	DefaultConsumerGroup = "default"

	// Broadcast as the ConsumerGroup of a Subscriber delivers every message to every subscription, for example to
	// update a cache in each instance of a program. Each Subscribe creates a group (Delivery.Group). It receives the
	// messages that become due afterwards, and those already due that no group has claimed. The group ends with the
	// subscription or, after a crash, by GroupExpiry. A topic can have 100 groups. Messages that become due while it
	// has none wait for the next group.
	Broadcast = "<broadcast>"

	// MinRedeliveryDelay is the shortest time from a Nack to the next delivery, so that a message that always fails
	// does not occupy its consumers. Shorter delays are raised to it.
	MinRedeliveryDelay = 100 * time.Millisecond
)

// PublisherConfig configures a Publisher. Only Client is required. No duration may be above 100 years.
type PublisherConfig struct {
	// Client is a go-redis client for standalone Redis, Sentinel or Cluster, or a type that embeds one. A redis.Ring is
	// an error. The caller closes it, after the Publisher.
	Client redis.UniversalClient

	// Prefix starts the name of every key in Redis. Publishers and subscribers of a topic need the same one. It must
	// not contain braces. Default: DefaultPrefix.
	Prefix string

	// Marshaler encodes messages. Default: DefaultMarshaler.
	Marshaler Marshaler

	// Partitions is the minimum number of partitions of each topic, 1 to 192, to spread a topic over the masters of a
	// Cluster (docs/operate/scaling.md). Redis stores the number, which only grows: of several publishers, the highest
	// minimum applies. A Publisher may not know a new number for up to 5s or, if it is idle, until its second call.
	// That loses nothing, because subscribers receive from all partitions. Default: 1.
	Partitions int

	// PartitionKey chooses the partition of a message without an ordering key (SetOrderingKey) and without a key
	// (SetKey): messages with the same PartitionKey share a partition, until the number of partitions grows. "" means
	// none; such messages of one Publish call share a partition, and calls rotate through the partitions. It must be
	// safe for concurrent use. Default: nil, none.
	PartitionKey func(topic string, msg *message.Message) string

	// OnDuplicate applies to messages with a key (SetKey) and without a policy of their own (SetOnDuplicate).
	// Default: RejectDuplicate.
	OnDuplicate DuplicatePolicy

	// DeduplicationWindow is how long after Publish the key of a message (SetKey) stays in use, even if the message
	// is acked or dead by then. So Publish can be repeated after ErrOutcomeUnknown. Publish stores the window with the
	// key: it applies to all publishers with RejectDuplicate or IgnoreDuplicate, but not to keys that they publish
	// without a window. Duplicates do not prolong it, and Cancel ends it. Each key takes about 100 bytes of Redis and
	// its own length. 1ms to 100 years, by Redis's clock, rounded up to milliseconds; an error with ReplaceDuplicate.
	// Default: 0, only until all groups are done with the message.
	DeduplicationWindow time.Duration

	// Delay.DefaultDelayGenerator gives a delay to messages that have none in their metadata or context. Default: none,
	// such messages are due at once. AllowNoDelay is ignored.
	Delay delay.PublisherConfig

	// MaxMessageBytes limits the size of an encoded message (ErrMessageTooLarge). At most 512 MiB. Default: 4 MiB.
	MaxMessageBytes int

	// PublishTimeout is how long Publish, PublishAsync, Cancel, Reschedule and Close try at most. At least 10ms.
	// Default: 10s.
	PublishTimeout time.Duration

	// MaxPending is how many messages of PublishAsync may have no outcome yet, over all topics. At this limit, and at
	// 16 MiB of encoded messages, PublishAsync waits. A single call may exceed both. Default: 4,000; more does not make
	// one goroutine faster.
	MaxPending int

	// WaitReplicas is how many replicas must have received the messages before Publish returns nil; with fewer, it
	// returns a *ReplicationError. With 0, a failover may lose messages that the new master has not received
	// (docs/operate/scaling.md). Default: 0.
	WaitReplicas int

	// WaitTimeout is how long Publish waits for WaitReplicas, in whole milliseconds, less than the client's
	// ReadTimeout. At least 1ms. Default: 1s.
	WaitTimeout time.Duration

	// Observer receives events about calls and outages, for metrics and traces (observe.Join for several). The logger
	// reports them as well. Default: none.
	Observer observe.Observer
}

func (c *PublisherConfig) setDefaults() {
	c.Prefix = cmp.Or(c.Prefix, DefaultPrefix)
	c.Partitions = cmp.Or(c.Partitions, 1)
	c.OnDuplicate = cmp.Or(c.OnDuplicate, RejectDuplicate)
	c.MaxMessageBytes = cmp.Or(c.MaxMessageBytes, 4<<20)
	c.PublishTimeout = cmp.Or(c.PublishTimeout, 10*time.Second)
	c.MaxPending = cmp.Or(c.MaxPending, 4000)
	c.WaitTimeout = cmp.Or(c.WaitTimeout, time.Second)
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
	if timeout := queue.NewStore(c.Client, c.Prefix, observe.Observer{}).ReadTimeout(); timeout > 0 && c.WaitTimeout >= timeout {
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

func (c *ControlConfig) setDefaults() { c.Prefix = cmp.Or(c.Prefix, DefaultPrefix) }

// Validate reports the first invalid field as a *ConfigError.
func (c ControlConfig) Validate() error {
	c.setDefaults()
	return validateShared(c.Client, c.Prefix)
}

// SubscriberConfig configures a Subscriber. Only Client is required. No duration may be above 100 years.
type SubscriberConfig struct {
	// Client is as in PublisherConfig. All subscriptions of a client share one more connection to each server, for
	// notifications.
	Client redis.UniversalClient

	// Prefix is as in PublisherConfig. Default: DefaultPrefix.
	Prefix string

	// Unmarshaler decodes messages. Default: DefaultMarshaler.
	Unmarshaler Unmarshaler

	// ConsumerGroup is the group of the subscriptions. Every group receives each message, and its subscriptions share
	// the messages. Broadcast makes each Subscribe a group of its own; an empty group does not, unlike in
	// watermill-redisstream. AllGroups is an error. Default: DefaultConsumerGroup.
	ConsumerGroup string

	// GroupExpiry is how long the group of a topic lasts without a live subscription (docs/use/groups.md). Then its
	// messages, waiting and dead, are deleted; the next Subscribe starts an empty group. That takes up to 45s longer.
	// If subscribers of a group differ, the last Subscribe or SubscribeInitialize decides. At least 1s. Default: 0,
	// forever; for Broadcast, 50s.
	GroupExpiry time.Duration

	// ConsumerName is the name of this subscriber in package admin. It need not be unique. Default: the host name.
	ConsumerName string

	// MaxInFlight is how many messages of one subscription handlers may have at once, 1 to 1,000. More than 1 needs a
	// reader that handles messages concurrently, such as Watermill's Router, and gives up order. Default: 1.
	MaxInFlight int

	// LeaseDuration is how long after the last call of a dead or disconnected consumer another one receives its
	// messages. Live consumers extend their leases, so handlers may take longer. At least 100ms. Default: 30s.
	LeaseDuration time.Duration

	// NackDelay returns the time from a Nack to the next delivery, at least MinRedeliveryDelay; attempt is 1 after the
	// first delivery. Delivery.Defer, and a delay that a middleware sets in the metadata, take precedence. It must be
	// safe for concurrent use; see Backoff. Default: 100ms, doubled with each attempt, up to 1 minute, each lengthened
	// by up to half at random (not in package redisdelaytest).
	NackDelay func(attempt int) time.Duration

	// MaxDeliveries is the number of deliveries without an Ack after which a message is dead-lettered in the group.
	// Prefetched messages that no handler has seen do not count. A message that kills its process may be delivered once
	// more. With the default NackDelay, 5 deliveries take 2 seconds, 10 a minute and 20 eleven minutes. Default: 0, no
	// limit.
	MaxDeliveries int

	// GroupLimits limits all consumers of the group together. Subscribe and SubscribeInitialize store it in Redis, and
	// replace the limits that the group has. The zero value keeps them; Control.LimitGroup removes them. Default: zero.
	GroupLimits GroupLimits

	// OnExpired is what happens to messages that have expired (SetExpiration). Default: BuryExpired.
	OnExpired ExpirationPolicy

	// MaxBufferBytes limits the bodies of prefetched messages of a subscription that no handler has yet. A single
	// message may be larger. At least 1 MiB. Default: 16 MiB.
	MaxBufferBytes int

	// PollInterval is how late messages may be if notifications fail: a subscription without them polls this often. It
	// rarely needs to change. Below PingInterval + 3s, subscriptions always poll this often, which costs Redis
	// commands; else, they poll about every 30s while notifications arrive. At least 100ms. Default: 5s; a year in
	// package redisdelaytest.
	PollInterval time.Duration

	// PingInterval is how often a subscription's connection for notifications is checked. It rarely needs to change.
	// Subscriptions of a Client share the connection if they have the same PingInterval. At least 100ms. Default: 2s; a
	// year in package redisdelaytest.
	PingInterval time.Duration

	// CloseTimeout is how long handlers may finish after Stop, Close or the end of the Subscribe context, before the
	// contexts of their messages end. At least 1ms. Default: 10s.
	CloseTimeout time.Duration

	// Observer receives events about messages, calls and outages, for metrics and traces (observe.Join for several).
	// The logger reports them as well. Default: none.
	Observer observe.Observer
}

// lossless is a client that loses no notifications, as that of package redisdelaytest. Its subscribers need no polls and heartbeats,
// which would make a simulated month take minutes instead of milliseconds.
type lossless interface{ LosesNoNotifications() }

const year = 365 * 24 * time.Hour

func (c *SubscriberConfig) setDefaults() {
	c.Prefix = cmp.Or(c.Prefix, DefaultPrefix)
	c.ConsumerGroup = cmp.Or(c.ConsumerGroup, DefaultConsumerGroup)
	if c.ConsumerGroup == Broadcast {
		c.GroupExpiry = cmp.Or(c.GroupExpiry, broadcastExpiry)
	}
	c.MaxInFlight = cmp.Or(c.MaxInFlight, 1)
	c.LeaseDuration = cmp.Or(c.LeaseDuration, 30*time.Second)
	c.OnExpired = cmp.Or(c.OnExpired, BuryExpired)
	c.MaxBufferBytes = cmp.Or(c.MaxBufferBytes, 16<<20)
	poll, ping := 5*time.Second, notify.Interval
	if _, is := c.Client.(lossless); is {
		poll, ping = year, year
	}
	c.PollInterval = cmp.Or(c.PollInterval, poll)
	c.PingInterval = cmp.Or(c.PingInterval, ping)
	c.CloseTimeout = cmp.Or(c.CloseTimeout, 10*time.Second)
	c.GroupLimits.setDefaults()
	if c.Unmarshaler == nil {
		c.Unmarshaler = DefaultMarshaler{}
	}
	if c.ConsumerName == "" {
		c.ConsumerName, _ = os.Hostname() // only a name: empty will do
	}
	if c.NackDelay == nil {
		c.NackDelay = defaultNackDelay
	}
}

func defaultNackDelay(attempt int) time.Duration {
	return Backoff(MinRedeliveryDelay, time.Minute, 2)(attempt)
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

// ConfigError names the invalid field of a config, or argument of a call, and the problem.
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
	if err := script.CheckClient(client); err != nil {
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
