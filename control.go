package redisdelay

import (
	"context"
	"fmt"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

var (
	// ErrTopicNotFound is returned by a Control for a topic that nobody has published to
	// or subscribed to.
	ErrTopicNotFound = queue.ErrTopicNotFound

	// ErrGroupNotFound is returned by a Control for a consumer group that the topic does not
	// have: its name is wrong, nobody has subscribed yet, or it is retired or has expired.
	ErrGroupNotFound = queue.ErrGroupNotFound

	// ErrGroupAlive is returned by RetireGroup for a consumer group with subscriptions
	// that are alive. Its text names them.
	ErrGroupAlive = queue.ErrGroupAlive
)

// AllGroups stands for all consumer groups of a topic in Pause, Resume and Drain. The other calls need the name of a group.
const AllGroups = "<all>"

// drainEvery is how often Drain looks.
const drainEvery = 200 * time.Millisecond

// Control pauses, drains, limits and retires the consumer groups of topics. The settings are stored in Redis and apply
// to all consumers at once. A Control is safe for concurrent use, also with other Controls, publishers and subscribers,
// and needs no Close. A call ends with its context. After an error, it may have been carried out in some partitions,
// and can be repeated.
type Control struct{ store *queue.Store }

// NewControl returns a Control. It does no I/O. The error is a *ConfigError.
func NewControl(config ControlConfig) (*Control, error) {
	config.setDefaults()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	store, err := queue.NewStore(config.Client, config.Prefix, observe.Observer{})
	if err != nil {
		return nil, err // which Validate has found
	}
	return &Control{store: store}, nil
}

// Pause is a pause of consumer groups, or of a schedule of package periodic.
type Pause struct {
	// For is how long the pause lasts, by Redis's clock: 1ms to 100 years. 0: until Resume, as for all schedules.
	For time.Duration `json:",omitempty"`

	By, Reason string // for people: package admin shows them; "": unknown

	// Since and All describe a pause that is in force. Calls that pause ignore them.
	Since time.Time // when it began
	All   bool      `json:",omitempty"` // whether it is of AllGroups
}

// Until is when a pause that is in force ends by itself; zero if it does not.
func (p Pause) Until() time.Time {
	if p.For == 0 {
		return time.Time{}
	}
	return p.Since.Add(p.For)
}

// Pause stops a group, or AllGroups, from claiming: no consumer claims a message after it has returned. Running
// handlers continue, with leases, acks and nacks, and publishing continues. Consumers return prefetched messages to the
// queue, except a message that is already offered on the channel. A new pause replaces the old one of the same group.
// The pause of AllGroups is separate from those of the groups.
//
// The error is a *ConfigError for a bad Pause.For or an empty group, ErrEmptyTopic, ErrTopicNotFound,
// ErrGroupNotFound, ErrProtocolTooNew, ErrServerTooOld, *KeyTypeError, or that of ctx or of Redis. After one of the
// last three, the call may have had its effect, or may still have it.
func (c *Control) Pause(ctx context.Context, topic, group string, pause Pause) error {
	if pause.For != 0 {
		if err := validateDuration("For", pause.For, time.Millisecond); err != nil {
			return err
		}
	}
	return c.callForAny(group, "pause", topic, func(t *queue.Topic, group string) error {
		return t.Pause(ctx, group, queue.Pause{Duration: pause.For, By: pause.By, Reason: pause.Reason})
	})
}

// Resume ends the pause of a group, or that of AllGroups, and wakes its consumers.
// Without a pause it does nothing, but returns ErrGroupNotFound if there is no such group
// either. The other errors are those of Pause.
func (c *Control) Resume(ctx context.Context, topic, group string) error {
	return c.callForAny(group, "resume", topic, func(t *queue.Topic, group string) error { return t.Resume(ctx, group) })
}

// Remaining is what Drain waits for.
type Remaining struct {
	Due        int // messages that are due and not given to the groups yet
	Queued     int // messages that wait for a group, also for a retry, or in line for their ordering keys
	InDelivery int // messages that a consumer holds
}

// Drain waits until a group, or AllGroups, has no message that is due, waits for a retry or is in delivery. It calls
// progress, which may be nil, with what remains, at once and then about every 200ms. It deletes nothing and pauses
// nothing, so messages that become due meanwhile count, too. A group that is paused or has no consumer may never be
// drained, so give ctx a deadline.
//
// The errors are those of Pause: ErrGroupNotFound also if the group is retired meanwhile. A topic without groups has nothing to
// drain, even if messages are due.
func (c *Control) Drain(ctx context.Context, topic, group string, progress func(Remaining)) error {
	return c.callForAny(group, "drain", topic, func(t *queue.Topic, group string) error {
		ticker := time.NewTicker(drainEvery)
		defer ticker.Stop()
		for {
			counts, err := inspect.CountTopic(ctx, t, group)
			if err != nil {
				return err
			}
			remaining := Remaining{Due: counts.Due, Queued: counts.Queued + counts.InLine + counts.Retrying, InDelivery: counts.InDelivery}
			if progress != nil {
				progress(remaining)
			}
			if remaining == (Remaining{}) {
				return nil
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	})
}

// RetireOptions change what RetireGroup does.
type RetireOptions struct {
	// Force retires a group whose subscriptions are alive, too. Their handlers learn it at the
	// next heartbeat (ErrLeaseLost).
	Force bool
}

// RetireGroup removes a consumer group from a topic and frees all messages that it holds, in bounded steps: messages
// that wait, are in delivery or dead. A message that other groups need stays until they have handled it. RetireGroup
// returns how many messages this call has freed. If it is interrupted, call it again. Concurrent calls are safe.
//
// Until RestoreGroup, Subscribe returns ErrGroupRetired, and a running subscription stops claiming. A group that is
// about to expire (SubscriberConfig.GroupExpiry) can be retired, too, so that no Subscribe recreates it.
//
// The error is a *ConfigError for AllGroups, ErrGroupAlive if a subscription of the group is alive and
// RetireOptions.Force is not set, or as for Pause. With the defaults, a subscription is alive for a minute after its
// last call to Redis, unless it was closed (docs/use/groups.md).
func (c *Control) RetireGroup(ctx context.Context, topic, group string, options RetireOptions) (freed int, err error) {
	how := queue.RetireIdle
	if options.Force {
		how = queue.RetireForced
	}
	err = c.callFor(group, "retire group of", topic, func(t *queue.Topic) error {
		return t.Retire(ctx, group, how, func(n int) { freed += n })
	})
	return freed, err
}

// RestoreGroup allows a retired group again. It starts with its next subscriber, or with those that are still running.
// It gets the messages that become due from then on. If the topic had no other group meanwhile, it also gets the
// messages that are due and that no group has claimed: they wait for the next group, whichever it is. A group that is
// not retired stays as it is. The error is a *ConfigError for AllGroups, or as for Pause, but never ErrGroupNotFound.
func (c *Control) RestoreGroup(ctx context.Context, topic, group string) error {
	return c.callFor(group, "restore group of", topic, func(t *queue.Topic) error { return t.Restore(ctx, group) })
}

// callForAny makes a call for one group, or for AllGroups, which package queue names "".
func (c *Control) callForAny(group, verb, topic string, do func(t *queue.Topic, group string) error) error {
	switch group {
	case "":
		return &ConfigError{"group", "is empty, want a name or AllGroups"}
	case AllGroups:
		group = ""
	}
	return c.call(verb, topic, func(t *queue.Topic) error { return do(t, group) })
}

// callFor makes a call for one group.
func (c *Control) callFor(group, verb, topic string, do func(t *queue.Topic) error) error {
	if group == "" || group == AllGroups {
		return &ConfigError{"group", fmt.Sprintf("is %q, want the name of one group", group)}
	}
	return c.call(verb, topic, do)
}

func (c *Control) call(verb, topic string, do func(t *queue.Topic) error) error {
	if topic == "" {
		return ErrEmptyTopic
	}
	if err := do(c.store.Topic(topic)); err != nil {
		return wrap(err, "%s %q", verb, topic)
	}
	return nil
}

// ErrLimitTooLow is returned by Subscribe, SubscribeInitialize and LimitGroup when the limits
// of a group are lower than the number of partitions, and by Publish when it would raise that
// number above them: each partition has to have a share.
var ErrLimitTooLow = queue.ErrLimitTooLow

// GroupLimits limits a consumer group on a topic, over all its consumers together. They are
// kept in Redis and enforced there: no consumer has to know the others. Watermill's Throttle
// limits the handlers of one process.
//
// With partitions, each has its share of MaxInFlight and of the Rate, because partitions may be on different servers:
// the sum is never exceeded, but a partition cannot use the unused share of another. While partitions are added, or a
// limit is lowered, what is in delivery then may exceed it.
type GroupLimits struct {
	// MaxInFlight is how many messages all consumers may hold at once, from the claim to the
	// ack or nack. A message whose lease has run out counts until it is claimed again and
	// settled. From the number of partitions to 1,000,000,000. Default: 0, any number.
	MaxInFlight int

	// Rate is how many messages the handlers of all consumers may get in a time. Default: any number.
	Rate Rate

	// HaltsKeys makes a dead letter of the group halt its ordering key (SetOrderingKey): the messages of the key that
	// are due wait in line until the letter is requeued or discarded. A message that is buried while another one of its
	// key has the turn halts nothing. It works without a limit. Limits that are set later without it, also by another
	// Subscriber, end it: then all halted keys continue.
	HaltsKeys bool
}

// Rate is a number of messages in a time. Every delivery to a handler counts, also a redelivery. In any time t,
// handlers get at most Burst + Messages × t / Per. There may be more claims, because a message that is returned to the
// queue before a handler has seen it hardly counts.
type Rate struct {
	Messages int           // at most 1,000,000,000. Default: 0, any number; then Per and Burst must be 0, too
	Per      time.Duration // 1ms to 100 years. Default: 1s

	// Burst is how many messages may be claimed at once after the group has been idle. At
	// least the number of partitions. Default: Messages.
	Burst int
}

func (l *GroupLimits) setDefaults() {
	if l.Rate.Messages == 0 {
		return
	}
	setDefault(&l.Rate.Per, time.Second)
	setDefault(&l.Rate.Burst, l.Rate.Messages)
}

// maxLimit keeps the arithmetic of the scripts exact.
const maxLimit = 1_000_000_000

func (l GroupLimits) validate() error {
	for _, f := range []struct {
		name  string
		value int
	}{{"MaxInFlight", l.MaxInFlight}, {"Rate.Messages", l.Rate.Messages}, {"Rate.Burst", l.Rate.Burst}} {
		if f.value < 0 || f.value > maxLimit {
			return &ConfigError{"GroupLimits." + f.name, fmt.Sprintf("is %d, want 0 to %d", f.value, maxLimit)}
		}
	}
	switch {
	case l.Rate.Messages > 0:
		return validateDuration("GroupLimits.Rate.Per", l.Rate.Per, time.Millisecond)
	case l.Rate != Rate{}:
		return &ConfigError{"GroupLimits.Rate.Messages", "is 0, but Per or Burst is set"}
	}
	return nil
}

// inQueue is the form of package queue.
func (l GroupLimits) inQueue() queue.Limits {
	return queue.Limits{MaxInFlight: l.MaxInFlight, Messages: l.Rate.Messages, Per: l.Rate.Per, Burst: l.Rate.Burst, HaltsKeys: l.HaltsKeys}
}

// LimitGroup replaces the limits of a consumer group. The zero GroupLimits remove them. They apply to all later claims.
// A subscriber with SubscriberConfig.GroupLimits sets its own when it subscribes.
//
// The error is a *ConfigError, also for AllGroups, ErrLimitTooLow, ErrGroupNotFound, or as for Pause.
func (c *Control) LimitGroup(ctx context.Context, topic, group string, limits GroupLimits) error {
	limits.setDefaults()
	if err := limits.validate(); err != nil {
		return err
	}
	return c.callFor(group, "limit group of", topic, func(t *queue.Topic) error { return t.Limit(ctx, group, limits.inQueue()) })
}
