package admin

import (
	"context"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// operation is what is done with messages.
type operation struct {
	verb   string
	sets   []Set // that a query may be for; the first is the default
	maxIDs int   // in one call of ids

	everyGroup bool // it is for all groups of a message: a selection by id or key names none

	bytes int // of bodies that one step has at most; 0: no bodies

	// cutoff is the operation's reference time in ms, made of when it began by Redis's clock. An
	// operation that is resumed keeps it.
	cutoff func(began int64) int64

	// step is for messages of one place. It returns those that it has skipped, and how many it was
	// not for.
	step func(ctx context.Context, s step, cutoff int64) (skips []skip, others int, err error)

	// ids and key are for messages wherever they are.
	ids func(ctx context.Context, p places, ids []string, cutoff int64) (skips []skip, err error)
	key func(ctx context.Context, p places, key string, cutoff int64) error
}

// skip is a message that an operation has left as it was.
type skip struct {
	name string // its id, or its key
	why  error
}

// places are where messages may be.
type places struct {
	topic  *queue.Topic
	groups []string // for operations on groups
}

// maxCalls is how many calls for single messages go to Redis at once.
const maxCalls = 16

// atStart is the cutoff of operations that began then.
func atStart(now int64) int64 { return now }

func cancelOperation() operation {
	return operation{
		verb: "cancel", sets: []Set{Scheduled, Waiting, InDelivery, Dead}, maxIDs: maxCalls, everyGroup: true, cutoff: atStart,
		step: func(ctx context.Context, s step, _ int64) ([]skip, int, error) {
			if s.place == inspect.InScheduled {
				skips, err := inspect.Withdraw(ctx, s.group, s.place, scored(s.entries))
				return skipAll(skips, ErrNotWaiting), 0, err
			}
			skips, err := callEach(idsOf(s.entries), func(id string) error { return errorOf(s.partition.CancelID(ctx, id)) })
			return skips, 0, err
		},
		ids: func(ctx context.Context, p places, ids []string, _ int64) ([]skip, error) {
			return callEach(ids, func(id string) error { return errorOf(p.topic.CancelID(ctx, id)) })
		},
		key: func(ctx context.Context, p places, key string, _ int64) error {
			return errorOf(p.topic.Cancel(ctx, key))
		},
	}
}

func rescheduleOperation(remaining time.Duration) operation {
	soon := max(0, ceilMilli(time.UnixMilli(0).Add(remaining)))
	return operation{
		verb: "reschedule", sets: []Set{Scheduled, Waiting}, maxIDs: maxCalls, everyGroup: true,
		cutoff: func(began int64) int64 { return began + soon },
		step: func(ctx context.Context, s step, due int64) ([]skip, int, error) {
			// Those that are due then were moved before, and are met again. Those that are due
			// already need not be made due now.
			others := dropped(&s, func(e inspect.PageEntry) bool { return e.Score == due || soon == 0 && e.Score < due })
			if len(s.entries) == 0 {
				return nil, others, nil
			}
			skips, err := inspect.Retime(ctx, s.group, s.place, due, scored(s.entries))
			return skipAll(skips, ErrNotWaiting), others, err
		},
		ids: func(ctx context.Context, p places, ids []string, due int64) ([]skip, error) {
			return callEach(ids, func(id string) error { return rescheduleError(p.topic.RescheduleID(ctx, id, due)) })
		},
		key: func(ctx context.Context, p places, key string, due int64) error {
			return rescheduleError(p.topic.RescheduleAt(ctx, key, due))
		},
	}
}

func requeueOperation() operation {
	return deadOperation("requeue", func(ctx context.Context, g *queue.Group, ids []string, latest int64) ([]string, error) {
		return queue.Requeue(ctx, g, latest, ids)
	})
}

func discardOperation() operation {
	return deadOperation("discard", func(ctx context.Context, g *queue.Group, ids []string, latest int64) ([]string, error) {
		return queue.Discard(ctx, g, latest, ids)
	})
}

// deadOperation is for the dead letters that are there when it begins.
func deadOperation(verb string, do groupCall) operation {
	return operation{
		verb: verb, sets: []Set{Dead}, maxIDs: queue.MaxMessages, cutoff: atStart,
		step: func(ctx context.Context, s step, latest int64) ([]skip, int, error) {
			others := dropped(&s, func(e inspect.PageEntry) bool { return e.Score > latest })
			skips, err := do.step(ctx, s, latest)
			return skipAll(skips, ErrNotDead), others, err
		},
		ids: do.ids(ErrNotDead), key: do.key(ErrNotDead),
	}
}

func buryOperation(reason string) operation {
	do := groupCall(func(ctx context.Context, g *queue.Group, ids []string, _ int64) ([]string, error) {
		return g.BuryAny(ctx, reason, ids)
	})
	return operation{
		verb: "bury", sets: []Set{Waiting, InDelivery}, maxIDs: queue.MaxMessages, cutoff: atStart,
		step: func(ctx context.Context, s step, cutoff int64) ([]skip, int, error) {
			if s.place == inspect.InScheduled {
				return skipAll(idsOf(s.entries), ErrNotWaiting), 0, nil
			}
			skips, err := do.step(ctx, s, cutoff)
			return skipAll(skips, ErrNotWaiting), 0, err
		},
		ids: do.ids(ErrNotWaiting), key: do.key(ErrNotWaiting),
	}
}
