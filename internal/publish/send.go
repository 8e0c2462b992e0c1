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

// send sends a batch under its number, again and again while the error may pass and a
// caller waits, and tells the callers how it ended.
func (l *lanes) send(ctx context.Context, to destination, b *batch) {
	topic := l.topics.find(to.topic)
	request := l.common
	request.Publisher, request.Number = b.publisher, b.number
	for _, c := range b.calls {
		request.Calls = append(request.Calls, c.messages)
	}
	pause := backoff.Backoff{Min: minBackoff, Max: maxBackoff}
	for {
		rejected, err := topic.Push(ctx, to.partition, request)
		if stored(err) {
			l.outage.worked(to)
			l.finish(b, rejected, err)
			return
		}
		l.note(b, err)
		if queue.Transient(err) && ctx.Err() == nil {
			l.outage.failed(to, err)
			if pause.Wait(ctx) {
				continue
			}
		}
		if errors.Is(err, queue.ErrStalePublisher) {
			l.rename(b.publisher)
		}
		if !queue.Refused(err) { // an earlier attempt may have stored it
			err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
		}
		l.finish(b, nil, err)
		return
	}
}

// stored tells whether messages are stored for all that an error says.
func stored(err error) bool {
	var shortfall *queue.ReplicationError
	return err == nil || errors.As(err, &shortfall)
}

// note keeps the error of an attempt, for callers that leave.
func (l *lanes) note(b *batch, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b.last = err
}

// rename gives the publisher a name without a history.
func (l *lanes) rename(stale string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.name == stale { // no other batch has done so
		l.name = l.newName()
	}
}

// finish ends a batch. It holds the lock at the end, so that a caller that leaves sees a
// batch either done or not.
func (l *lanes) finish(b *batch, rejected []queue.Duplicate, err error) {
	b.resolve(rejected, err)
	l.mu.Lock()
	defer l.mu.Unlock()
	b.finish()
}
