package redisdelay

import (
	"context"
	"fmt"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// ErrLimitTooLow is returned by Subscribe, SubscribeInitialize and LimitGroup when the limits
// of a group are lower than the number of partitions, and by Publish when it would raise that
// number above them: each partition has to have a share.
var ErrLimitTooLow = queue.ErrLimitTooLow

// GroupLimits limits a consumer group on a topic, over all its consumers together. They are
// kept in Redis and enforced there: no consumer has to know the others. Watermill's Throttle
// limits the handlers of one process.
//
// With partitions, each has its share of MaxInFlight and of the Rate, since no script sees two
// partitions: the sum is never exceeded, but a partition cannot use what another leaves over.
// While partitions are added, or a limit is lowered, what is in delivery then may exceed it.
type GroupLimits struct {
	// MaxInFlight is how many messages all consumers may hold at once, from the claim to the
	// ack or nack. A message whose lease has run out counts until it is claimed again and
	// settled. At least the number of partitions. Default: 0, any number.
	MaxInFlight int

	// Rate is how many messages all consumers may claim in a time. Default: any number.
	Rate Rate
}

// Rate is a number of messages in a time. Every delivery counts, also a redelivery, and one
// that is given back. In any time t, at most Burst + Messages × t / Per are claimed.
type Rate struct {
	Messages int           // 0: any number
	Per      time.Duration // at least 1ms. Default: 1s

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
	return queue.Limits{MaxInFlight: l.MaxInFlight, Messages: l.Rate.Messages, Per: l.Rate.Per, Burst: l.Rate.Burst}
}

// LimitGroup limits a consumer group, in place of the limits that it has; the zero
// GroupLimits end them. Consumers follow at their next claim. A subscriber with
// SubscriberConfig.GroupLimits sets its own when it subscribes.
//
// The error is a *ConfigError, ErrLimitTooLow, ErrGroupNotFound, or as for Pause.
func (c *Control) LimitGroup(ctx context.Context, topic, group string, limits GroupLimits) error {
	limits.setDefaults()
	if err := limits.validate(); err != nil {
		return err
	}
	return c.call("limit group of", topic, func(t *queue.Topic) error { return t.Limit(ctx, group, limits.inQueue()) })
}
