package script

import (
	"context"
	"fmt"
	"sync"
)

// maxCalls is the maximum number of concurrent calls of a Client that may be abandoned. The client
// usually has fewer connections; the limit is for calls that hang.
const maxCalls = 256

// calls limits and counts the calls to Redis that their callers may abandon. Each call has a
// goroutine of its own. It is safe for concurrent use.
type calls struct {
	slots chan struct{} // holds a value for each call under way

	mu      sync.Mutex
	running int           // guarded by mu
	idle    chan struct{} // guarded by mu; closed when none is running; nil if no caller waits for that
}

func newCalls() *calls { return &calls{slots: make(chan struct{}, maxCalls)} }

// begin waits until a call may be made.
func (c *calls) begin(ctx context.Context) error {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return EndOf(ctx)
	}
	c.began()
	return nil
}

func (c *calls) end() {
	<-c.slots
	c.ends()
}

func (c *calls) began() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running++
}

func (c *calls) ends() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running--; c.running == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// ended returns a channel that is closed when no call is under way; nil if none is now.
func (c *calls) ended() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == 0 {
		return nil
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	return c.idle
}

// RunAbandonable makes a call and returns its result, or the error of ctx as soon as ctx ends. go-redis
// does not notice the end of ctx while it waits for a reply. An abandoned call continues until the
// client's timeouts at the latest; it must not use data of its caller.
//
// A panic in the call, such as that of a hook of the client, is a *PanicError.
//
// Callers that abandon their calls themselves do not need it; see Script.Awaited.
func RunAbandonable[T any](ctx context.Context, c *Client, call func(ctx context.Context) (T, error)) (T, error) {
	if ctx.Done() == nil {
		return guarded(ctx, call)
	}
	var none T
	if err := c.calls.begin(ctx); err != nil {
		return none, c.ExplainEnd(err)
	}
	return abandonable(ctx, c, call, c.calls.end)
}

// abandonable is RunAbandonable for a call that has begun. It calls end when the call ends.
func abandonable[T any](ctx context.Context, c *Client, call func(ctx context.Context) (T, error), end func()) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	done := make(chan result, 1) // so that the send never blocks
	go func() {                  // ends with the call, which the client's timeouts end
		defer end()
		value, err := guarded(ctx, call)
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, c.ExplainEnd(EndOf(ctx))
	}
}

// guarded makes a call, and returns a panic as a *PanicError.
func guarded[T any](ctx context.Context, call func(ctx context.Context) (T, error)) (value T, err error) {
	defer recovered(&err)
	return call(ctx)
}

// Go runs a function, which makes calls for several callers, in a goroutine. WaitIdle waits for it, too.
func (c *Client) Go(send func()) {
	c.calls.began()
	go func() {
		defer c.calls.ends()
		send()
	}()
}

// ExplainEnd adds the known reason why Redis has not answered to the error of an ended context.
func (c *Client) ExplainEnd(cause error) error { return fmt.Errorf("%w: %w", cause, c.WhyNoAnswer()) }

// WaitIdle waits until no abandoned call is under way, or ctx ends.
func (c *Client) WaitIdle(ctx context.Context) error {
	ended := c.calls.ended()
	if ended == nil {
		return nil
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return EndOf(ctx)
	}
}

// EndOf returns the error of a context that has ended. A cause that is not an error of package context is only in the text: it
// may be the error of another call, as with errgroup, and must not be taken for the outcome of this one.
func EndOf(ctx context.Context) error {
	cause := context.Cause(ctx)
	if cause == context.Canceled || cause == context.DeadlineExceeded { //nolint:errorlint // what wraps it is an error of another call
		return cause
	}
	return fmt.Errorf("%w (cause: %v)", ctx.Err(), cause) //nolint:errorlint // hides the cause on purpose
}
