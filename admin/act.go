package admin

import (
	"context"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// act is something that is done with messages.
type act struct {
	verb string
	in   []Set // what a query may be for; the first is the default
	most int   // ids in one call of ids

	everyGroup bool // it is for all groups of a message: a selection names none

	bytes int // of bodies that one step has at most; 0: no bodies

	// mark is what is the same for all messages, and for an act that continues this one: a
	// time in ms, from when the act began by Redis's clock.
	mark func(began int64) int64

	// step acts on messages of one place. It returns those that it has left alone, and how
	// many it was not for.
	step func(ctx context.Context, s step, mark int64) (left []skipped, others int, err error)

	// ids and key act on messages wherever they are.
	ids func(ctx context.Context, p places, ids []string, mark int64) (left []skipped, err error)
	key func(ctx context.Context, p places, key string, mark int64) error
}

// skipped is a message that an act has left alone.
type skipped struct {
	name string // its id, or its key
	why  error
}

// places are where messages may be.
type places struct {
	topic  *queue.Topic
	groups []string // for acts that are for groups
}

// maxCalls is how many calls for single messages go to Redis at once.
const maxCalls = 16

// began is the mark of acts for which it is when they began.
func began(now int64) int64 { return now }

func cancelling() act {
	return act{
		verb: "cancel", in: []Set{Scheduled, Waiting, InDelivery, Dead}, most: maxCalls, everyGroup: true, mark: began,
		step: func(ctx context.Context, s step, _ int64) ([]skipped, int, error) {
			if s.place == inspect.InScheduled {
				left, err := inspect.Withdraw(ctx, s.group, s.place, scored(s.entries))
				return because(left, ErrNotWaiting), 0, err
			}
			left, err := together(idsOf(s.entries), func(id string) error { return cancelled(s.partition.CancelID(ctx, id)) })
			return left, 0, err
		},
		ids: func(ctx context.Context, p places, ids []string, _ int64) ([]skipped, error) {
			return together(ids, func(id string) error { return cancelled(p.topic.CancelID(ctx, id)) })
		},
		key: func(ctx context.Context, p places, key string, _ int64) error {
			return cancelled(p.topic.Cancel(ctx, key))
		},
	}
}

func rescheduling(remaining time.Duration) act {
	soon := max(0, ceilMilli(time.UnixMilli(0).Add(remaining)))
	return act{
		verb: "reschedule", in: []Set{Scheduled, Waiting}, most: maxCalls, everyGroup: true,
		mark: func(began int64) int64 { return began + soon },
		step: func(ctx context.Context, s step, due int64) ([]skipped, int, error) {
			// Those that are due then were moved before, and are met again. Those that are due
			// already need not be made due now.
			others := dropped(&s, func(e inspect.PageEntry) bool { return e.Score == due || soon == 0 && e.Score < due })
			if len(s.entries) == 0 {
				return nil, others, nil
			}
			left, err := inspect.Retime(ctx, s.group, s.place, due, scored(s.entries))
			return because(left, ErrNotWaiting), others, err
		},
		ids: func(ctx context.Context, p places, ids []string, due int64) ([]skipped, error) {
			return together(ids, func(id string) error { return rescheduled(p.topic.RescheduleID(ctx, id, due)) })
		},
		key: func(ctx context.Context, p places, key string, due int64) error {
			return rescheduled(p.topic.RescheduleAt(ctx, key, due))
		},
	}
}

func requeueing() act {
	return onDead("requeue", func(ctx context.Context, g *queue.Group, ids []string, latest int64) ([]string, error) {
		return queue.Requeue(ctx, g, latest, ids)
	})
}

func discarding() act {
	return onDead("discard", func(ctx context.Context, g *queue.Group, ids []string, latest int64) ([]string, error) {
		return queue.Discard(ctx, g, latest, ids)
	})
}

// onDead is an act on the dead letters that are there when it begins.
func onDead(verb string, do groupCall) act {
	return act{
		verb: verb, in: []Set{Dead}, most: queue.MaxMessages, mark: began,
		step: func(ctx context.Context, s step, latest int64) ([]skipped, int, error) {
			others := dropped(&s, func(e inspect.PageEntry) bool { return e.Score > latest })
			left, err := do.step(ctx, s, latest)
			return because(left, ErrNotDead), others, err
		},
		ids: do.ids(ErrNotDead), key: do.key(ErrNotDead),
	}
}

func burying(reason string) act {
	do := groupCall(func(ctx context.Context, g *queue.Group, ids []string, _ int64) ([]string, error) {
		return g.BuryAny(ctx, reason, ids)
	})
	return act{
		verb: "bury", in: []Set{Waiting, InDelivery}, most: queue.MaxMessages, mark: began,
		step: func(ctx context.Context, s step, mark int64) ([]skipped, int, error) {
			if s.place == inspect.InScheduled {
				return because(idsOf(s.entries), ErrNotWaiting), 0, nil
			}
			left, err := do.step(ctx, s, mark)
			return because(left, ErrNotWaiting), 0, err
		},
		ids: do.ids(ErrNotWaiting), key: do.key(ErrNotWaiting),
	}
}
