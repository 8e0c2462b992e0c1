package admin

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// operation is a kind of bulk operation.
type operation struct {
	verb   string
	sets   []Set // that a query may be for; the first is the default
	maxIDs int   // in one call of ids

	everyGroup bool // it is for all groups of a message: a selection by id or key names none

	// cutoff is the operation's reference time in ms, made of when it began by the clock of the first partition. An
	// operation that is resumed keeps it.
	cutoff func(began int64) int64

	buried bool // step, or ids, compares the cutoff with times in each partition: each needs one by its own clock

	// step changes messages of one place. It returns the skipped messages, and the number of messages that are not
	// counted.
	step func(ctx context.Context, s step, cutoff int64) (skips []skip, others int, err error)

	// ids and key change messages in all places.
	ids func(ctx context.Context, in scope, ids []string, cutoff int64) (skips []skip, err error)
	key func(ctx context.Context, in scope, key string, cutoff int64) error
}

// skip is a skipped message, with the reason.
type skip struct {
	name string // its id, or its key
	why  error
}

// scope says where to look for messages by id or key.
type scope struct {
	topic  *queue.Topic
	groups []string      // for operations on groups
	ahead  map[int]int64 // as clocks returns it
}

// atStart is the cutoff of operations that began then.
func atStart(now int64) int64 { return now }

func cancelOperation() operation {
	return operation{
		verb: "cancel", sets: []Set{Scheduled, Waiting, InDelivery, Dead}, maxIDs: atOnce, everyGroup: true, cutoff: atStart,
		step: func(ctx context.Context, s step, _ int64) ([]skip, int, error) {
			partition := s.group.Partition()
			if s.request.Place == inspect.InScheduled {
				skips, err := inspect.CancelScheduled(ctx, partition, scored(s.entries))
				return skipAll(skips, ErrNotWaiting), 0, err
			}
			skips, err := callEach(idsOf(s.entries), func(id string) error { return errorOf(partition.CancelID(ctx, id)) })
			return skips, 0, err
		},
		ids: func(ctx context.Context, in scope, ids []string, _ int64) ([]skip, error) {
			return callEach(ids, func(id string) error { return errorOf(in.topic.CancelID(ctx, id)) })
		},
		key: func(ctx context.Context, in scope, key string, _ int64) error {
			return errorOf(in.topic.Cancel(ctx, key))
		},
	}
}

func rescheduleOperation(remaining time.Duration) operation {
	soon := max(0, ceilMilli(time.UnixMilli(0).Add(remaining)))
	return operation{
		verb: "reschedule", sets: []Set{Scheduled, Waiting}, maxIDs: atOnce, everyGroup: true,
		cutoff: func(began int64) int64 { return began + soon },
		step: func(ctx context.Context, s step, due int64) ([]skip, int, error) {
			// Messages with the new due time were moved before, and are met again. Due messages need not be moved to now.
			others := dropped(&s, func(e inspect.PageEntry) bool { return e.Score == due || soon == 0 && e.Score < due })
			if len(s.entries) == 0 {
				return nil, others, nil
			}
			skips, err := inspect.RescheduleWaiting(ctx, s.group, s.request.Place, due, scored(s.entries))
			return skipAll(skips, ErrNotWaiting), others, err
		},
		ids: func(ctx context.Context, in scope, ids []string, due int64) ([]skip, error) {
			return callEach(ids, func(id string) error { return rescheduleError(in.topic.RescheduleID(ctx, id, due)) })
		},
		key: func(ctx context.Context, in scope, key string, due int64) error {
			return rescheduleError(in.topic.RescheduleAt(ctx, key, due))
		},
	}
}

// deadOperation is an operation on the dead messages that exist when it starts.
func deadOperation(verb string, do groupCall) operation {
	return operation{
		verb: verb, sets: []Set{Dead}, maxIDs: queue.MaxMessages, cutoff: atStart, buried: true,
		step: func(ctx context.Context, s step, latest int64) ([]skip, int, error) {
			others := dropped(&s, s.buriedAfter(latest))
			skips, err := do.step(ctx, s, latest)
			return skipAll(skips, ErrNotDead), others, err
		},
		ids: do.ids(ErrNotDead), key: do.key(ErrNotDead),
	}
}

// buriedAfter reports whether a message was dead-lettered after a time. A message from the future does not count: the
// clock was set back since.
func (s step) buriedAfter(latest int64) func(inspect.PageEntry) bool {
	now := s.now.UnixMilli()
	return func(e inspect.PageEntry) bool { return e.Score > latest && e.Score <= now }
}

func buryOperation(reason string) operation {
	do := groupCall(func(ctx context.Context, g *queue.Group, ids []string, _ int64) ([]string, error) {
		return g.BuryAny(ctx, reason, ids)
	})
	return operation{
		verb: "bury", sets: []Set{Waiting, InDelivery}, maxIDs: queue.MaxMessages, cutoff: atStart,
		step: func(ctx context.Context, s step, cutoff int64) ([]skip, int, error) {
			if s.request.Place == inspect.InScheduled {
				return skipAll(idsOf(s.entries), ErrNotWaiting), 0, nil
			}
			skips, err := do.step(ctx, s, cutoff)
			return skipAll(skips, ErrNotWaiting), 0, err
		},
		ids: do.ids(ErrNotWaiting), key: do.key(ErrNotWaiting),
	}
}

// groupCall changes messages of a group in one partition and returns the ids of the unchanged messages.
type groupCall func(ctx context.Context, g *queue.Group, ids []string, cutoff int64) (unchanged []string, err error)

func (do groupCall) step(ctx context.Context, s step, cutoff int64) (unchanged []string, err error) {
	if len(s.entries) == 0 {
		return nil, nil
	}
	return do(ctx, s.group, idsOf(s.entries), cutoff)
}

// ids is for messages in all partitions. Those that no group of any partition has are skipped.
func (do groupCall) ids(why error) func(context.Context, scope, []string, int64) ([]skip, error) {
	return func(ctx context.Context, in scope, ids []string, cutoff int64) ([]skip, error) {
		var mu sync.Mutex
		times := map[string]int{} // guarded by mu; how often it was unchanged
		calls := 0                // guarded by mu
		err := in.topic.Each(ctx, func(ctx context.Context, partition *queue.Partition) error {
			for _, name := range in.groups {
				unchanged, err := do(ctx, partition.Group(name), ids, cutoff+in.ahead[partition.Number()])
				if err != nil {
					return err
				}
				mu.Lock()
				calls++
				for _, id := range unchanged {
					times[id]++
				}
				mu.Unlock()
			}
			return nil
		})
		unchanged := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return times[id] < calls })
		return skipAll(unchanged, why), err
	}
}

// key changes the messages that a key refers to. There may be several if the number of partitions was raised.
func (do groupCall) key(why error) func(context.Context, scope, string, int64) error {
	return func(ctx context.Context, in scope, key string, cutoff int64) error {
		var mu sync.Mutex
		var ids []string // guarded by mu
		err := in.topic.Each(ctx, func(ctx context.Context, partition *queue.Partition) error {
			found, err := inspect.LocateIn(ctx, partition, "", key)
			if errors.Is(err, ErrMessageNotFound) {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			ids = append(ids, found.ID)
			return err
		})
		switch {
		case err != nil:
			return err
		case len(ids) == 0:
			return ErrMessageNotFound
		}
		skips, err := do.ids(why)(ctx, in, ids, cutoff)
		if err == nil && len(skips) == len(ids) {
			err = skips[0].why
		}
		return err
	}
}

// callEach makes a call for each message, until an error that is not a reason to skip a message.
func callEach(ids []string, call func(id string) error) (skips []skip, err error) {
	reasons := make([]error, len(ids)) // why messages were skipped
	err = each(len(ids), func(i int) error {
		why := call(ids[i])
		if isSkipped(why) {
			reasons[i], why = why, nil
		}
		return why
	})
	for i, why := range reasons {
		if why != nil {
			skips = append(skips, skip{ids[i], why})
		}
	}
	return skips, err
}

// isSkipped reports whether an error is a reason to skip a message.
func isSkipped(err error) bool {
	return errors.Is(err, ErrMessageNotFound) || errors.Is(err, ErrNotWaiting) || errors.Is(err, ErrNotDead)
}

func errorOf(_ queue.Status, err error) error { return err }

// rescheduleError returns why a message was not rescheduled.
func rescheduleError(was queue.Status, err error) error {
	if errors.Is(err, ErrMessageNotFound) && !errors.Is(err, redisdelay.ErrMessageDead) && was.ID != "" { // a handler has it
		return ErrNotWaiting
	}
	return err
}

// skipAll skips messages for one reason.
func skipAll(ids []string, why error) []skip {
	list := make([]skip, len(ids))
	for i, id := range ids {
		list[i] = skip{id, why}
	}
	return list
}

func idsOf(entries []inspect.PageEntry) []string {
	list := make([]string, len(entries))
	for i, e := range entries {
		list[i] = e.ID
	}
	return list
}

// scored returns messages with their scores.
func scored(entries []inspect.PageEntry) []inspect.Seen {
	list := make([]inspect.Seen, len(entries))
	for i, e := range entries {
		list[i] = e.Seen
	}
	return list
}

// dropped removes messages from a step and returns their number.
func dropped(s *step, drop func(inspect.PageEntry) bool) int {
	before := len(s.entries)
	s.entries = slices.DeleteFunc(s.entries, drop)
	return before - len(s.entries)
}
