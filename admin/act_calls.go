package admin

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// groupCall acts on messages of a group in one partition and returns the ids of those that it
// has left alone.
type groupCall func(ctx context.Context, g *queue.Group, ids []string, mark int64) (left []string, err error)

func (do groupCall) step(ctx context.Context, s step, mark int64) (left []string, err error) {
	if len(s.entries) == 0 {
		return nil, nil
	}
	return do(ctx, s.group, idsOf(s.entries), mark)
}

// ids acts on messages in all partitions. Those that are left in all groups of all
// partitions are skipped.
func (do groupCall) ids(why error) func(context.Context, places, []string, int64) ([]skipped, error) {
	return func(ctx context.Context, p places, ids []string, mark int64) ([]skipped, error) {
		var mu sync.Mutex
		times := map[string]int{} // guarded by mu; how often it was left
		calls := 0                // guarded by mu
		err := p.topic.Each(ctx, func(ctx context.Context, partition *queue.Partition) error {
			for _, name := range p.groups {
				left, err := do(ctx, partition.Group(name), ids, mark)
				if err != nil {
					return err
				}
				mu.Lock()
				calls++
				for _, id := range left {
					times[id]++
				}
				mu.Unlock()
			}
			return nil
		})
		left := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return times[id] < calls })
		return because(left, why), err
	}
}

// key acts on what a key leads to: one message or, if the number of partitions was raised,
// several.
func (do groupCall) key(why error) func(context.Context, places, string, int64) error {
	return func(ctx context.Context, p places, key string, mark int64) error {
		var mu sync.Mutex
		var ids []string // guarded by mu
		err := p.topic.Each(ctx, func(ctx context.Context, partition *queue.Partition) error {
			found, err := inspect.LookIn(ctx, partition, "", key)
			if errors.Is(err, inspect.ErrNoMessage) {
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
		left, err := do.ids(why)(ctx, p, ids, mark)
		if err == nil && len(left) == len(ids) {
			err = left[0].why
		}
		return err
	}
}

// together makes a call for each message, some at once. An error that is no reason to skip a
// message ends it.
func together(ids []string, call func(id string) error) (left []skipped, err error) {
	for some := range slices.Chunk(ids, maxCalls) {
		errs := make([]error, len(some))
		var calls sync.WaitGroup
		for i, id := range some {
			calls.Go(func() { errs[i] = call(id) })
		}
		calls.Wait()
		for i, why := range errs {
			if why != nil && !isSkipped(why) {
				return left, why
			}
			if why != nil {
				left = append(left, skipped{some[i], why})
			}
		}
	}
	return left, nil
}

// isSkipped tells whether an error says why a message was left alone.
func isSkipped(err error) bool {
	return slices.ContainsFunc([]error{
		ErrMessageNotFound, redisdelay.ErrMessageDead, ErrNotWaiting, ErrNotDead, // of all acts
		ErrKeyInUse, ErrStoredBefore, ErrInBothTopics, errNoBody, // of Copy and Move
	}, func(why error) bool { return errors.Is(err, why) })
}

// cancelled is why a message could not be taken back.
func cancelled(_ queue.Standing, err error) error {
	if errors.Is(err, queue.ErrNotFound) && !errors.Is(err, queue.ErrDead) {
		return ErrMessageNotFound
	}
	return err
}

// rescheduled is why a message got no new due time.
func rescheduled(was queue.Standing, err error) error {
	err = cancelled(was, err)
	if errors.Is(err, ErrMessageNotFound) && was.ID != "" { // a handler has it
		return ErrNotWaiting
	}
	return err
}

// because says of each message why it was left.
func because(ids []string, why error) []skipped {
	list := make([]skipped, len(ids))
	for i, id := range ids {
		list[i] = skipped{id, why}
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

// scored are messages as they were seen.
func scored(entries []inspect.PageEntry) []inspect.Seen {
	list := make([]inspect.Seen, len(entries))
	for i, e := range entries {
		list[i] = inspect.Seen{ID: e.ID, Score: e.Position.Score}
	}
	return list
}

// dropped takes messages out of a step and returns how many.
func dropped(s *step, drop func(inspect.PageEntry) bool) int {
	before := len(s.entries)
	s.entries = slices.DeleteFunc(s.entries, drop)
	return before - len(s.entries)
}

var errTooLate = errors.New("it is more than 292 years from now")

// remainingOf is the time from now to the end of a delay. As metadata, a Delay has both a time
// in whole seconds and how far away it was when the Delay was made: the due time is at most a
// second after the first, and no later than the second from now.
func remainingOf(to delay.Delay) (time.Duration, error) {
	carrier := message.NewMessage("", nil)
	delay.Message(carrier, to)
	until, err := time.Parse(time.RFC3339, carrier.Metadata.Get(delay.DelayedUntilKey))
	if err != nil {
		return 0, &redisdelay.DelayError{Header: delay.DelayedUntilKey, Value: carrier.Metadata.Get(delay.DelayedUntilKey), Err: err}
	}
	after, err := time.ParseDuration(carrier.Metadata.Get(delay.DelayedForKey))
	if err != nil {
		return 0, &redisdelay.DelayError{Header: delay.DelayedForKey, Value: carrier.Metadata.Get(delay.DelayedForKey), Err: err}
	}
	remaining := min(time.Until(until.Add(time.Second)), after)
	if remaining == math.MaxInt64 { // which is where durations end
		return 0, &redisdelay.DelayError{Header: delay.DelayedUntilKey, Value: carrier.Metadata.Get(delay.DelayedUntilKey), Err: errTooLate}
	}
	return remaining, nil
}
