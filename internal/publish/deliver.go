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
	request.Number = next.number
	for _, c := range next.calls {
		request.Calls = append(request.Calls, c.messages)
	}
	pause := backoff.Backoff{Min: minBackoff, Max: maxBackoff}
	uncertain := false // an attempt may have stored the batch
	for {
		refused, err := b.store(ctx, to, request)
		if shortfall := (*queue.ReplicationError)(nil); err == nil || errors.As(err, &shortfall) {
			b.finish(next, refused, err)
			return
		}
		uncertain = uncertain || !queue.Refused(err)
		b.note(next, err)
		if queue.Transient(err) && pause.Wait(ctx) {
			continue
		}
		if uncertain {
			err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
		}
		b.fail(next, err)
		return
	}
}

func (b *Batcher) note(next *batch, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	next.last = err
}

// finish ends a batch that is stored, with what may be wrong besides.
func (b *Batcher) finish(next *batch, refused []int, err error) {
	for _, c := range next.calls {
		c.err = err
	}
	for _, index := range refused {
		next.calls[index].err = ErrDuplicate
	}
	b.end(next)
}

func (b *Batcher) fail(next *batch, err error) {
	for _, c := range next.calls {
		c.err = err
	}
	b.end(next)
}

// end holds the lock, so that a caller that leaves sees a batch either done or not.
func (b *Batcher) end(next *batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	next.wait.Stop()
	close(next.done)
}
