package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// send makes one attempt to store a batch. Its calls get the outcome. However, if the batch is not stored for a reason that is
// temporary or may be due to one of the calls, they wait again in smaller batches.
func (ls *lanes) send(ctx context.Context, to destination, l *lane, b *batch) {
	defer func() { ls.records.add(to, b.request.Publisher, b.request.Repeatable.Load()) }()
	start := time.Now()
	duplicates, err := ls.topics.find(to.topic).Push(ctx, to.partition, b.request)
	switch {
	case isStored(err):
		l.arrived(b, time.Since(start))
		ls.finish(b, duplicates, err)
		ls.outages.Worked(observe.Publishing, to.place())
	case script.NotStored(err) || errors.Is(err, queue.ErrStalePublisher):
		ls.fail(b, err)
	default:
		if script.TimedOut(err) || len(b.calls) > 1 && !script.IsAnswer(err) { // its size may be why the connection was cut
			l.window.Lost(b.bytes)
		}
		ls.clarify(ctx, to, l, b, err)
	}
}

// isStored reports whether messages are stored, perhaps with too few replicas.
func isStored(err error) bool {
	if err == nil {
		return true
	}
	var shortfall *script.ReplicationError
	return errors.As(err, &shortfall)
}

// clarify finds out whether a batch is stored after an error that leaves this open.
func (ls *lanes) clarify(ctx context.Context, to destination, l *lane, b *batch, cause error) {
	is, duplicates, err := ls.queryOutcome(ctx, to, l, b, cause)
	switch {
	case is:
		ls.finish(b, duplicates, err)
		ls.outages.Worked(observe.Publishing, to.place())
	case err != nil:
		ls.fail(b, err)
	case len(b.calls) == 1 && b.hopeless(cause):
		ls.finish(b, nil, fmt.Errorf("not stored: %w", cause))
	default:
		ls.sendAgain(ctx, l, b, cause)
	}
}

// queryOutcome asks for the outcome of a batch again and again while the error is temporary and a caller waits. Nothing else is sent
// meanwhile: while Redis does not answer a small call, it will not answer a large one.
func (ls *lanes) queryOutcome(ctx context.Context, to destination, l *lane, b *batch, cause error) (is bool, duplicates []queue.Duplicate, err error) {
	topic, request := ls.topics.find(to.topic), b.request
	for err = cause; ; {
		ls.note(b, err)
		if script.Transient(err) && ctx.Err() == nil {
			ls.outages.Failed(observe.Publishing, to.place(), err)
		}
		request.Timeout = l.within(0, b.deadline)
		is, duplicates, err = topic.Outcome(ctx, to.partition, request)
		if isStored(err) { // not counted by the window, because the batch itself was lost
			return is, duplicates, err
		}
		if script.TimedOut(err) {
			l.window.Lost(0)
		}
		if !script.Transient(err) || !b.pause.Wait(ctx) {
			return false, nil, err
		}
	}
}

// hopeless reports whether a call that was sent alone and is not stored should not be sent again.
func (b *batch) hopeless(cause error) bool {
	if !script.Transient(cause) {
		return true
	}
	if !script.IsAnswer(cause) && !script.TimedOut(cause) { // after a timeout, the next attempt may take longer
		b.cuts++
	}
	return b.cuts >= maxCuts
}

// sendAgain lets the calls of a batch that is not stored wait again, in front of all others, so that PublishAsync calls keep their
// order. A Publish call that was sent alone and did not arrive in time waits behind them: it may be too large for the connection.
func (ls *lanes) sendAgain(ctx context.Context, l *lane, b *batch, cause error) {
	alone := len(b.calls) == 1
	behind := alone && b.calls[0].future == nil && script.TimedOut(cause)
	ls.mu.Lock()
	b.unseal() // callers that leave now learn that nothing is stored, and remove their calls
	ls.mu.Unlock()
	if alone && !behind {
		b.pause.Wait(ctx)
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	parts := b.split(ls.common, l.window.Size())
	for _, part := range parts {
		for _, c := range part.calls {
			if c.future != nil {
				ls.endAt(part, c.deadline)
			}
		}
	}
	if behind {
		l.waiting = append(l.waiting, parts...)
	} else {
		l.waiting = slices.Concat(parts, l.waiting)
	}
	b.finish()
}

// note keeps the error of an attempt, for callers that leave.
func (ls *lanes) note(b *batch, err error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	b.last = err
}

// fail ends a batch with an error of Push or Outcome.
func (ls *lanes) fail(b *batch, err error) {
	if errors.Is(err, queue.ErrStalePublisher) {
		ls.rename(b.request.Publisher)
	}
	if !script.NotStored(err) { // an attempt may have stored it
		err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	ls.finish(b, nil, err)
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
func (ls *lanes) finish(b *batch, duplicates []queue.Duplicate, err error) {
	b.resolve(duplicates, err)
	ls.mu.Lock()
	b.finish()
	ended := b.endPieces()
	ls.mu.Unlock()
	ls.pending.finishAll(ended)
}

// within is the time limit of an attempt. It is not much longer than a caller waits, since no other batch is sent meanwhile.
func (l *lane) within(bytes int, deadline time.Time) time.Duration {
	within := l.window.Timeout(bytes)
	for within/2 >= max(time.Until(deadline), time.Second) {
		within /= 2
	}
	return within
}

// arrived records in the window that a batch was answered. With replicas, part of the time was spent waiting for them, so it
// does not count.
func (l *lane) arrived(b *batch, took time.Duration) {
	if b.request.Replicas > 0 {
		took = 0
	}
	l.window.Arrived(b.bytes, took)
}
