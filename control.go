package redisdelay

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

var (
	// ErrTopicNotFound is returned by a Control for a topic that no process has published to or subscribed to.
	ErrTopicNotFound = queue.ErrTopicNotFound

	// ErrGroupNotFound is returned by a Control for a consumer group that the topic does not have, for example because
	// it has not subscribed yet, is retired, or has expired.
	ErrGroupNotFound = queue.ErrGroupNotFound

	// ErrGroupAlive is returned by RetireGroup for a group with live subscriptions. Its text names them.
	ErrGroupAlive = queue.ErrGroupAlive
)

// AllGroups stands for all consumer groups of a topic in PauseGroup, ResumeGroup and DrainGroup. The other calls need
// the name of a group.
const AllGroups = "<all>"

// drainEvery is how often DrainGroup counts.
const drainEvery = 200 * time.Millisecond

// Control pauses, drains, limits and retires the consumer groups of topics. The settings are stored in Redis and apply
// to all consumers at once. A Control is safe for concurrent use and needs no Close.
//
// Besides the errors of the package comment, a call returns ErrTopicNotFound, ErrGroupNotFound, or a *ConfigError
// for an invalid argument. After an error of ctx or Redis, a call may have taken effect, perhaps only in some
// partitions. Repeat it.
type Control struct{ store *queue.Store }

// NewControl returns a Control. It does no I/O. The error is a *ConfigError.
func NewControl(config ControlConfig) (*Control, error) {
	config.setDefaults()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	return &Control{store: queue.NewStore(config.Client, config.Prefix, observe.Observer{})}, nil
}

// Pause is a pause of consumer groups, or of a schedule of package periodic.
type Pause struct {
	// For is how long the pause lasts, 1ms to 100 years, by Redis's clock. 0, the only value for schedules: until resumed.
	For time.Duration `json:",omitempty"`

	By, Reason string // shown by package admin; optional

	// Since and All are set in a pause that is in force, as packages admin and periodic return it. Calls ignore them.
	Since time.Time // when it began
	All   bool      `json:",omitempty"` // it is the pause of AllGroups
}

// Until returns when a pause that is in force ends by itself: Since plus For, or zero without For.
func (p Pause) Until() time.Time {
	if p.For == 0 {
		return time.Time{}
	}
	return p.Since.Add(p.For)
}

// PauseGroup stops the consumers of a group, or of AllGroups, from claiming messages. Running handlers continue, and so does
// publishing. Consumers return prefetched messages to the queue, except one that is already offered on the channel. A
// new pause replaces the old one of the group. The pause of AllGroups is separate: a group claims only if neither is in
// force.
func (c *Control) PauseGroup(ctx context.Context, topic, group string, pause Pause) error {
	if pause.For != 0 {
		if err := validateDuration("For", pause.For, time.Millisecond); err != nil {
			return err
		}
	}
	return c.callForAny(group, "pause", topic, func(t *queue.Topic, group string) error {
		return t.Pause(ctx, group, queue.Pause{Duration: pause.For, By: pause.By, Reason: pause.Reason})
	})
}

// ResumeGroup ends the pause of a group, or that of AllGroups, and wakes its consumers. Without a pause it does nothing.
func (c *Control) ResumeGroup(ctx context.Context, topic, group string) error {
	return c.callForAny(group, "resume", topic, func(t *queue.Topic, group string) error { return t.Resume(ctx, group) })
}

// DrainProgress is what DrainGroup waits for.
type DrainProgress struct {
	Due        int // messages that are due and not given to the groups yet
	Waiting    int // messages in the queue of a group, also for a retry, or in line for their ordering keys
	InDelivery int // messages that a consumer holds
}

// DrainGroup waits until a group, or AllGroups, has no messages that are due, wait for a retry, or are in delivery. It calls
// progress, if not nil, with what remains: at once, and then about every 200ms. It neither deletes nor pauses, so
// messages that become due meanwhile count. A paused group, or one without consumers, may never drain, so give ctx a
// deadline. With AllGroups, a topic without groups is drained. If the group is retired meanwhile, the error is ErrGroupNotFound.
func (c *Control) DrainGroup(ctx context.Context, topic, group string, progress func(DrainProgress)) error {
	return c.callForAny(group, "drain", topic, func(t *queue.Topic, group string) error {
		ticker := time.NewTicker(drainEvery)
		defer ticker.Stop()
		for {
			counts, err := inspect.CountTopic(ctx, t, group)
			if err != nil {
				return err
			}
			remaining := DrainProgress{Due: counts.Due, Waiting: counts.Ready + counts.InLine + counts.Postponed, InDelivery: counts.InDelivery}
			if progress != nil {
				progress(remaining)
			}
			if remaining == (DrainProgress{}) {
				return nil
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return script.EndOf(ctx)
			}
		}
	})
}

// RetireOptions are options of RetireGroup.
type RetireOptions struct {
	// Force also retires a group with live subscriptions. Their handlers are notified at the next heartbeat
	// (ErrLeaseLost).
	Force bool
}

// RetireGroup removes a consumer group from a topic, and frees its messages, waiting, in delivery or dead, in bounded
// steps. Messages that other groups need stay for them. It returns how many messages this call has freed. If it is
// interrupted, call it again.
//
// Until RestoreGroup, Subscribe returns ErrGroupRetired, and running subscriptions claim nothing. A group that expires
// (SubscriberConfig.GroupExpiry) can be retired, so that no Subscribe recreates it.
//
// If a subscription of the group is alive and Force is not set, the error is ErrGroupAlive. With the defaults, a
// subscription is alive until it is closed, or for a minute after its last call (docs/use/groups.md).
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

// RestoreGroup allows a retired group again. It starts, empty, with its next subscriber, or with those that still run,
// and gets the messages that become due from then on, and those already due that no group has claimed. It does nothing
// for a group that is not retired.
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

// ErrLimitTooLow is returned by Subscribe, SubscribeInitialize and LimitGroup for limits below the number of
// partitions, and by Publish when it would raise that number above a limit: each partition needs a share.
var ErrLimitTooLow = queue.ErrLimitTooLow

// GroupLimits limits a consumer group on a topic, over all its consumers. Redis stores and enforces the limits.
//
// Each partition of the topic has an equal share of MaxInFlight and of Rate. The sum is never exceeded, but a partition
// cannot use the unused share of another. After a limit is lowered or partitions are added, more messages may be in
// delivery until they are settled.
type GroupLimits struct {
	// MaxInFlight is how many messages all consumers may hold at once, from the claim to the Ack or Nack. A message
	// whose lease has ended counts until another consumer has settled it. From the number of partitions to
	// 1,000,000,000. Default: 0, no limit.
	MaxInFlight int

	// Rate is how many messages handlers of all consumers may get in a time. Default: no limit.
	Rate Rate

	// HaltsKeys makes a dead message of the group halt its ordering key (SetOrderingKey): the next messages of the key
	// wait until the dead message is requeued or discarded. A message that is buried while another one of its key is being
	// handled does not halt it. HaltsKeys may be the only field that is set. Limits without it end all halts.
	HaltsKeys bool
}

// Rate is a number of messages in a time. Every delivery to a handler counts, also a redelivery: in any time t,
// handlers get at most Burst + Messages × t / Per. If a message is returned to the queue before a handler has seen it,
// its share of the rate is refunded, but less the longer it was held.
type Rate struct {
	Messages int           // at most 1,000,000,000. Default: 0, any number; then Per and Burst must be 0, too
	Per      time.Duration // 1ms to 100 years. Default: 1s

	// Burst is how many messages may be claimed at once after the group has been idle. At least the number of
	// partitions. Default: Messages.
	Burst int
}

func (l *GroupLimits) setDefaults() {
	if l.Rate.Messages == 0 {
		return
	}
	l.Rate.Per = cmp.Or(l.Rate.Per, time.Second)
	l.Rate.Burst = cmp.Or(l.Rate.Burst, l.Rate.Messages)
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

// LimitGroup replaces the limits of a consumer group, for all later claims. The zero GroupLimits remove them. A
// subscriber with SubscriberConfig.GroupLimits stores its own when it subscribes. If a limit is below the number of
// partitions, the error is ErrLimitTooLow.
func (c *Control) LimitGroup(ctx context.Context, topic, group string, limits GroupLimits) error {
	limits.setDefaults()
	if err := limits.validate(); err != nil {
		return err
	}
	return c.callFor(group, "limit group of", topic, func(t *queue.Topic) error { return t.Limit(ctx, group, limits.inQueue()) })
}
