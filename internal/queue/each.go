package queue

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Each calls do for all partitions at once, so one that does not answer holds up no
// other, and waits for all. It returns the error of reading how many there are, or the
// joined errors of do.
func (t *Topic) Each(ctx context.Context, do func(ctx context.Context, p *Partition) error) error {
	number, err := t.Partitions(ctx)
	if err != nil {
		return err
	}
	if number == 1 {
		return do(ctx, t.Partition(0))
	}
	return t.visit(ctx, 0, number, do)
}

// visit calls do for a range of partitions, all at once, and waits for all.
func (t *Topic) visit(ctx context.Context, from, to int, do func(ctx context.Context, p *Partition) error) error {
	errs := make([]error, to-from)
	var calls sync.WaitGroup
	for i := range errs {
		calls.Go(func() { errs[i] = do(ctx, t.Partition(from+i)) })
	}
	calls.Wait()
	return joined(errs)
}

// joined joins errors with different texts: the partitions of one server fail alike.
func joined(errs []error) error {
	seen := map[string]bool{}
	var different []error
	for _, err := range errs {
		if err != nil && !seen[err.Error()] {
			seen[err.Error()] = true
			different = append(different, err)
		}
	}
	if len(different) == 1 {
		return different[0]
	}
	return errors.Join(different...)
}

// Cancel takes back the message that holds a key; see Partition.Cancel.
func (t *Topic) Cancel(ctx context.Context, key string) error {
	return t.withKey(ctx, func(ctx context.Context, p *Partition) error { return p.Cancel(ctx, key) })
}

// Reschedule gives the message that holds a key another due time; see
// Partition.Reschedule.
func (t *Topic) Reschedule(ctx context.Context, key string, delay time.Duration) error {
	return t.withKey(ctx, func(ctx context.Context, p *Partition) error { return p.Reschedule(ctx, key, delay) })
}

// withKey calls do for each partition: a key is in one of them, or in several if the
// number of partitions was raised between two messages. It returns ErrNotFound if do
// does so for each.
func (t *Topic) withKey(ctx context.Context, do func(ctx context.Context, p *Partition) error) error {
	var found atomic.Bool
	err := t.Each(ctx, func(ctx context.Context, p *Partition) error {
		err := do(ctx, p)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		found.Store(true)
		return err
	})
	if err == nil && !found.Load() {
		return ErrNotFound
	}
	return err
}
