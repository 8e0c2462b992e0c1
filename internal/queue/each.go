package queue

import (
	"context"
	"errors"
	"sync"
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
	return t.Visit(ctx, 0, number, do)
}

// Visit calls do for a range of partitions, all at once, and waits for all.
func (t *Topic) Visit(ctx context.Context, from, to int, do func(ctx context.Context, p *Partition) error) error {
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

// Cancel takes back the message that a key leads to; see Partition.Cancel.
func (t *Topic) Cancel(ctx context.Context, key string) (Standing, error) {
	return t.withKey(ctx, func(ctx context.Context, p *Partition) (Standing, error) { return p.Cancel(ctx, key) })
}

// Reschedule gives the message that a key leads to another due time; see
// Partition.Reschedule.
func (t *Topic) Reschedule(ctx context.Context, key string, delay time.Duration) (Standing, error) {
	return t.withKey(ctx, func(ctx context.Context, p *Partition) (Standing, error) { return p.Reschedule(ctx, key, delay) })
}

// CancelID takes back the message with an id; see Partition.CancelID.
func (t *Topic) CancelID(ctx context.Context, id string) (Standing, error) {
	return t.withKey(ctx, func(ctx context.Context, p *Partition) (Standing, error) { return p.CancelID(ctx, id) })
}

// RescheduleAt gives the message that a key leads to another due time; see
// Partition.RescheduleAt.
func (t *Topic) RescheduleAt(ctx context.Context, key string, due int64) (Standing, error) {
	return t.withKey(ctx, func(ctx context.Context, p *Partition) (Standing, error) { return p.RescheduleAt(ctx, key, due) })
}

// RescheduleID gives the message with an id another due time; see Partition.RescheduleID.
func (t *Topic) RescheduleID(ctx context.Context, id string, due int64) (Standing, error) {
	return t.withKey(ctx, func(ctx context.Context, p *Partition) (Standing, error) { return p.RescheduleID(ctx, id, due) })
}

// withKey calls do for each partition: a key is in one of them, or in several if the
// number of partitions was raised between two messages. It returns the standing of a
// message that do has changed, else of one that it has found; of several, the one that was
// published last. It returns an ErrNotFound if do does so for each.
func (t *Topic) withKey(ctx context.Context, do func(ctx context.Context, p *Partition) (Standing, error)) (Standing, error) {
	var mu sync.Mutex
	best, missing := Standing{}, ErrNotFound // guarded by mu
	err := t.Each(ctx, func(ctx context.Context, p *Partition) error {
		standing, err := do(ctx, p)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if changed := err == nil; changed && missing != nil || changed == (missing == nil) && standing.ID > best.ID {
			best, missing = standing, err
		}
		return nil
	})
	if err == nil {
		err = missing
	}
	return best, err
}
