package redisdelay

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/internal/publish"
)

// PublishFuture is the future outcome of a PublishAsync call. It is safe for concurrent use. You may ignore it, because
// Flush returns the first error.
type PublishFuture struct{ future *publish.Future }

// Done is closed when the outcome is known.
func (f *PublishFuture) Done() <-chan struct{} { return f.future.Done() }

// Err returns nil until Done is closed. After that it returns the outcome: nil if the messages are
// stored, else the error that Publish would have returned.
func (f *PublishFuture) Err() error { return public(f.future.Err()) }

// Wait waits for the outcome and returns it. If ctx ends first, it returns the error of ctx, and the call continues.
func (f *PublishFuture) Wait(ctx context.Context) error {
	select {
	case <-f.Done():
		return f.Err()
	default:
	}
	select {
	case <-f.Done():
		return f.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// OnDone registers a function that is called with the outcome: at once if it is known, else by the goroutine that
// reports to the Observer. The function must be quick and must not block, because the outcomes of other calls wait for
// it and, at MaxPending messages, PublishAsync as well. So it must not call PublishAsync, Flush or Close. To publish
// again, use another goroutine. A panic in the goroutine that reports to the Observer is logged.
func (f *PublishFuture) OnDone(call func(err error)) {
	f.future.OnDone(func(err error) { call(public(err)) })
}

// PublishAsync is Publish that does not wait until the messages are stored. One goroutine publishes
// as fast with it as many do with Publish, since its calls share round trips. The outcome of each call is
// the one that Publish would return, and comes within PublishTimeout: from the future, also for
// errors that are known at once, or from Flush. The messages are encoded before PublishAsync
// returns, so they may be changed afterwards.
//
// It waits in two cases: while MaxPending messages have no outcome, and for an answer of Redis before the
// first message for a topic. The wait ends when
// PublishTimeout has passed, or the context of a message or the Publisher ends: then nothing is stored. In
// the first case, the error is ErrTooManyPending.
//
// The calls of one goroutine for a topic are stored in their order, whether they are PublishAsync or
// Publish calls. A call that fails does not stop those after it. With several partitions, only messages of
// the same key (PartitionKey, SetKey, SetOrderingKey) keep their order: other calls rotate through the
// partitions, which are independent. Publish calls for the same partition, of any goroutine, wait their
// turn among the PublishAsync calls.
//
// A delay counts from when the call is sent to Redis. While many calls wait, that is some milliseconds after
// PublishAsync; while Redis is unavailable, up to PublishTimeout. Messages are later by this time, also those with
// delay.Until. Cancel and Reschedule find a message once its outcome is known.
//
// The context of the messages ends the call, as it ends Publish: give them one that lasts.
func (p *Publisher) PublishAsync(topic string, messages ...*message.Message) *PublishFuture {
	if err := prepare(topic, messages); err != nil {
		return &PublishFuture{p.publisher.Refuse(err)}
	}
	return &PublishFuture{p.putAsync(topic, messages)}
}

// putAsync is put for PublishAsync.
func (p *Publisher) putAsync(topic string, messages []*message.Message) *publish.Future {
	if p.publisher.Closed() {
		return p.publisher.Refuse(publish.ErrClosed)
	}
	deadline := time.Now().Add(p.config.PublishTimeout)
	encoded, err := p.encode(topic, messages)
	if err != nil {
		return p.publisher.Refuse(fmt.Errorf("redisdelay: publish to %q: %w", topic, err))
	}
	ctx, stop := contextOf(messages)
	future := p.publisher.PublishAsync(ctx, stop, deadline, topic, encoded)
	if !p.checked.Load() {
		future.OnDone(func(err error) {
			if err == nil {
				p.warnOnce()
			}
		})
	}
	return future
}

// returnsOwnMemory tells whether a Marshaler is known to return no memory of the message.
func returnsOwnMemory(m Marshaler) bool {
	switch m.(type) {
	case DefaultMarshaler, JSONMarshaler:
		return true
	}
	return false
}

// PublishAsyncPending returns how many messages of PublishAsync calls are pending: their outcome is not
// known, or not reported to the Observer yet. They count for MaxPending.
func (p *Publisher) PublishAsyncPending() int { return p.publisher.Pending() }

// Flush waits until the outcomes of all earlier PublishAsync calls are known and reported to the Observer,
// and returns the first error of a call since the last Flush, whether or not its future was asked. If ctx
// ends first, Flush returns why, and a later Flush returns the error of the calls. It does not make the
// calls faster.
//
// If several goroutines publish, only one of them gets an error from Flush. Let each ask its own
// futures, or one flush for all.
func (p *Publisher) Flush(ctx context.Context) error {
	if err := p.publisher.Flush(ctx); err != nil {
		return public(err)
	}
	return nil
}

// logUnflushed logs an error that nobody has asked Flush for.
func (p *Publisher) logUnflushed() {
	if err := p.publisher.Failure(); err != nil {
		p.logger.Error("A PublishAsync call failed, and Flush was not called since", public(err), nil)
	}
}

// panicked logs a panic of a function that is told of the end of a PublishAsync call.
func (p *Publisher) panicked(value any, stack []byte) {
	p.logger.Error("A function that is told of published messages has panicked", &PanicError{Value: value, Stack: stack},
		watermill.LogFields{"stack": string(stack)})
}
