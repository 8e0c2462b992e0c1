package publish

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = time.Second
)

// send sends a batch under its number, again and again while the error is temporary and a
// caller waits, and tells the callers the outcome. It returns how long the attempt took that
// has stored it; 0 if none has.
func (ls *lanes) send(ctx context.Context, to destination, b *batch) time.Duration {
	topic := ls.topics.find(to.topic)
	request := ls.common
	request.Publisher, request.Number = b.record(), b.number
	request.Repeatable = new(atomic.Bool)
	defer func() { ls.records.left(to, request.Publisher, request.Repeatable.Load()) }()
	for _, c := range b.calls {
		request.Calls = append(request.Calls, c.messages)
	}
	pause := backoff.Backoff{Min: minBackoff, Max: maxBackoff}
	for {
		start := time.Now()
		rejected, err := topic.Push(ctx, to.partition, request)
		if stored(err) {
			took := time.Since(start)
			ls.finish(b, rejected, err)
			ls.outages.Worked(observe.Publishing, to.place())
			return took
		}
		ls.note(b, err)
		if queue.Transient(err) && ctx.Err() == nil {
			ls.outages.Failed(observe.Publishing, to.place(), err)
			if pause.Wait(ctx) {
				continue
			}
		}
		if errors.Is(err, queue.ErrStalePublisher) {
			ls.rename(b.publisher)
		}
		if !queue.Refused(err) { // an earlier attempt may have stored it
			err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
		}
		ls.finish(b, nil, err)
		return 0
	}
}

// stored reports whether messages are stored, perhaps with too few replicas.
func stored(err error) bool {
	if err == nil {
		return true
	}
	var shortfall *queue.ReplicationError
	return errors.As(err, &shortfall)
}

// note keeps the error of an attempt, for callers that leave.
func (ls *lanes) note(b *batch, err error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	b.last = err
}

// rename gives the publisher a new name, which has no batches yet.
func (ls *lanes) rename(stale string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.name == stale { // no other batch has renamed it
		ls.name = ls.newName()
	}
}

// finish ends a batch. It holds the lock at the end, so that a caller that leaves sees the
// batch either done or not done.
func (ls *lanes) finish(b *batch, rejected []queue.Duplicate, err error) {
	b.resolve(rejected, err)
	ls.mu.Lock()
	defer ls.mu.Unlock()
	b.finish()
}
