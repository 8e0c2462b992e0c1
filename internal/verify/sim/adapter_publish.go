package sim

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/publish"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/sim/store"
)

// publishTopic is the topic of a publisher.
type publishTopic struct{ p *publisher }

var _ publish.Topic = publishTopic{}

// EnsureListed implements publish.Topic.
func (t publishTopic) EnsureListed(ctx context.Context) error {
	_, err := call(ctx, t.p.link(0), "enlist", func(int64) bool { return true })
	return err
}

// Advance implements publish.Topic.
func (t publishTopic) Advance(ctx context.Context, _ string) error { return t.EnsureListed(ctx) }

// RaisePartitions implements publish.Topic.
func (t publishTopic) RaisePartitions(ctx context.Context, least int) (int, error) {
	return call(ctx, t.p.link(0), "raise", func(int64) int { return t.p.w.raise(least) })
}

// EndExpired implements publish.Topic. No group of the simulation expires.
func (t publishTopic) EndExpired(context.Context) ([]queue.Ended, error) { return nil, nil }

// DeleteRecords implements publish.Topic. The simulation keeps all records.
func (publishTopic) DeleteRecords(context.Context, int, []string) error { return nil }

// DeleteCallerRecords implements publish.Topic.
func (publishTopic) DeleteCallerRecords(context.Context) error { return nil }

// Push implements publish.Topic. Messages are stored under readable ids.
func (t publishTopic) Push(ctx context.Context, partition int, b queue.Batch) ([]queue.Duplicate, error) {
	batch := store.Batch{Publisher: b.Publisher, Number: b.Number, Duplicates: string(b.Duplicates)}
	for _, messages := range b.Calls {
		t.p.checkIDs(messages)
		list := make([]store.Message, len(messages))
		for i, m := range messages {
			list[i] = store.Message{ID: m.Name, Delay: milliseconds(m.Delay), At: m.At, Body: m.Body}
		}
		batch.Calls = append(batch.Calls, list)
	}
	l := t.p.link(partition)
	result, err := call(ctx, l, "push", func(now int64) store.Pushed { return t.p.stored(l, now, batch) })
	if err == nil && result.Failed != "" {
		err = script.NotStoredError(result.Failed)
	}
	if err == nil && result.Stale {
		err = queue.ErrStalePublisher
	}
	return ids(result.Duplicates, func(d store.Duplicate) queue.Duplicate { return queue.Duplicate(d) }), err
}

// Outcome implements publish.Topic.
func (t publishTopic) Outcome(ctx context.Context, partition int, b queue.Batch) (bool, []queue.Duplicate, error) {
	type outcome struct {
		stored, stale bool
		duplicates    []store.Duplicate
	}
	l := t.p.link(partition)
	o, err := call(ctx, l, "outcome", func(int64) (o outcome) {
		o.stored, o.duplicates, o.stale = t.p.w.topic.Partition(l.partition).Outcome(b.Publisher, b.Number)
		return o
	})
	if err == nil && o.stale {
		err = queue.ErrStalePublisher
	}
	return o.stored, ids(o.duplicates, func(d store.Duplicate) queue.Duplicate { return queue.Duplicate(d) }), err
}

// Cancel implements publish.Topic.
func (t publishTopic) Cancel(ctx context.Context, key string) (queue.Status, error) {
	return t.withKey(ctx, "cancel", func(partition int, _ int64) string { return t.p.cancelled(ctx, partition, key) })
}

// Reschedule implements publish.Topic.
func (t publishTopic) Reschedule(ctx context.Context, key string, delay time.Duration) (queue.Status, error) {
	return t.withKey(ctx, "reschedule", func(partition int, now int64) string {
		return t.p.rescheduled(ctx, partition, now, key, milliseconds(delay))
	})
}

// withKey calls do for all partitions. It reads their number first, which queue.Topic reads during the calls, and does
// not raise it.
func (t publishTopic) withKey(ctx context.Context, kind string, do func(partition int, now int64) (id string)) (queue.Status, error) {
	number, err := call(ctx, t.p.link(0), "partitions", func(int64) int { return t.p.w.topic.RaisePartitions(1) })
	if err != nil {
		return queue.Status{}, err
	}
	found, errs := make([]string, number), make([]error, number)
	var calls sync.WaitGroup
	for n := range number {
		calls.Go(func() {
			found[n], errs[n] = call(ctx, t.p.link(n), kind, inTime(ctx, func(now int64) string { return do(n, now) }))
		})
	}
	calls.Wait()
	if err := errors.Join(errs...); err != nil {
		return queue.Status{}, err
	}
	id := slices.Max(found)
	if id == "" {
		return queue.Status{}, queue.ErrNotFound
	}
	return queue.Status{ID: id}, nil
}

// inTime calls do at most once, even if a partition gets the call several times, and not after the
// caller's deadline.
func inTime(ctx context.Context, do func(now int64) string) func(now int64) string {
	deadline, _ := ctx.Deadline()
	made, id := false, ""
	return func(now int64) string {
		if !made && time.Now().Before(deadline) {
			made, id = true, do(now)
		}
		return id
	}
}

// WhyNoAnswer implements publish.Topic.
func (publishTopic) WhyNoAnswer() error { return errTimeout }
