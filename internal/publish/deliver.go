package publish

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = time.Second
)

// deliver sends a batch under its number, again and again while the error may
// pass and a caller waits, and tells the callers how it ended.
func (b *Batcher) deliver(ctx context.Context, to Destination, next *batch) {
	request := b.request
	request.Publisher, request.Number = next.publisher, next.number
	for _, c := range next.calls {
		request.Calls = append(request.Calls, c.messages)
	}
	pause := backoff.Backoff{Min: minBackoff, Max: maxBackoff}
	for {
		rejected, err := b.store(ctx, to, request)
		if shortfall := (*queue.ReplicationError)(nil); err == nil || errors.As(err, &shortfall) {
			b.outage.Worked(to)
			b.finish(next, rejected, err)
			return
		}
		b.note(next, err)
		if queue.Transient(err) && ctx.Err() == nil {
			b.outage.Failed(to, err)
			if pause.Wait(ctx) {
				continue
			}
		}
		if errors.Is(err, queue.ErrStalePublisher) {
			b.rename(next.publisher)
		}
		if !queue.Refused(err) { // an earlier attempt may have stored it
			err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
		}
		b.finish(next, nil, err)
		return
	}
}

func (b *Batcher) note(next *batch, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	next.last = err
}

// rename gives the publisher a name without a history.
func (b *Batcher) rename(stale string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.name == stale { // no other batch has done so
		b.name = b.newName()
	}
}

// finish ends a batch with one error for all its calls, but for those that are rejected.
// It holds the lock at the end, so that a caller that leaves sees a batch either done or
// not.
func (b *Batcher) finish(next *batch, rejected []queue.Duplicate, err error) {
	for _, c := range next.calls {
		c.err = err
	}
	for _, d := range rejected {
		message := next.calls[d.Call].messages[d.Message]
		next.calls[d.Call].err = fmt.Errorf("message %q: %w: %q", message.Name, ErrDuplicate, message.Key)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	next.wait.Stop()
	close(next.done)
}
