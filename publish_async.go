package redisdelay

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/internal/publish"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// PublishFuture is the future outcome of a PublishAsync call. It is safe for concurrent use. You may ignore it and call
// Flush.
type PublishFuture struct{ future *publish.Future }

// Done returns a channel that is closed when the outcome is known.
func (f *PublishFuture) Done() <-chan struct{} { return f.future.Done() }

// Err returns nil until Done is closed. Then it returns the error that Publish would have returned.
func (f *PublishFuture) Err() error { return public(f.future.Err()) }

// Wait waits for the outcome and returns it, or the error of ctx if that ends first. Then the call continues.
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
		return script.EndOf(ctx)
	}
}

// OnDone registers a function that is called with the outcome. If it is known already, OnDone calls the function
// itself. Else, one goroutine calls the functions of all futures, and logs their panics. The function must not block
// and must not call PublishAsync, Flush or Close, which may wait for that goroutine. To publish again, start another
// goroutine.
func (f *PublishFuture) OnDone(call func(err error)) {
	f.future.OnDone(func(err error) { call(public(err)) })
}

// PublishAsync is Publish without waiting until the messages are stored. One goroutine publishes as fast with it as
// many do with Publish. The outcome is the error that Publish would return. It is known within PublishTimeout, from the
// future or from Flush. The messages are encoded before PublishAsync returns, so they may be changed then.
//
// It waits while MaxPending messages have no outcome, and for Redis before the first message of a topic. The wait ends
// with PublishTimeout, the context of a message, or Close; then nothing is stored, and at MaxPending the outcome is
// [ErrTooManyPending].
//
// The calls of one goroutine for a topic, also those of Publish, are stored in their order, also after one of them has
// failed. With several partitions, only messages of the same key ([SetOrderingKey], [SetKey], PartitionKey) keep their
// order.
//
// A delay counts from when the call is sent to Redis. Messages are due later by the time until then: some milliseconds
// while many calls wait, up to PublishTimeout while Redis is unavailable. Cancel and Reschedule find a message when its
// outcome is known. Do not end the context of the messages when PublishAsync returns: that ends the call.
func (p *Publisher) PublishAsync(topic string, messages ...*message.Message) *PublishFuture {
	if err := prepare(topic, messages); err != nil {
		return &PublishFuture{p.publisher.FailAsync(err)}
	}
	return &PublishFuture{p.putAsync(topic, messages)}
}

// putAsync is put for PublishAsync.
func (p *Publisher) putAsync(topic string, messages []*message.Message) *publish.Future {
	if p.publisher.Closed() {
		return p.publisher.FailAsync(publish.ErrClosed)
	}
	deadline := time.Now().Add(p.config.PublishTimeout)
	encoded, err := p.encode(topic, messages)
	if err != nil {
		return p.publisher.FailAsync(fmt.Errorf("redisdelay: publish to %q: %w", topic, err))
	}
	ctx, stop := contextOf(messages)
	future := p.publisher.PublishAsync(ctx, stop, deadline, topic, encoded)
	if !p.checked.Load() {
		future.OnDone(func(err error) {
			if err == nil {
				p.warnOnce(messages)
			}
		})
	}
	return future
}

// returnsOwnMemory reports whether a Marshaler is known to return no memory of the message.
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

// Flush waits until the outcomes of all earlier PublishAsync calls are known, and returns the first error since the
// last Flush. The error is returned once: if several goroutines publish, the first one to return from Flush gets it, so
// let each of them use its futures instead. If ctx ends first, Flush returns the error of ctx, and a later Flush that
// of the calls.
func (p *Publisher) Flush(ctx context.Context) error {
	return public(p.publisher.Flush(ctx))
}

// logUnflushed logs an error that nobody has asked Flush for.
func (p *Publisher) logUnflushed() {
	if err := p.publisher.TakeError(); err != nil {
		p.logger.Error("A PublishAsync call failed, and Flush was not called since", public(err), nil)
	}
}

// panicked logs a panic of a function that is called at the end of a PublishAsync call.
func (p *Publisher) panicked(value any, stack []byte) {
	p.logger.Error("A function that receives results of PublishAsync has panicked", &PanicError{Value: value, Stack: stack},
		watermill.LogFields{"stack": string(stack)})
}
