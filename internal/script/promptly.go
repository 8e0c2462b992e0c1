package script

import (
	"context"
	"fmt"
	"sync"
)

// maxCalls is how many calls that can be given up a Client makes at once. The client usually has
// fewer connections; the limit is for calls that hang.
const maxCalls = 256

// calls are the calls to Redis that their callers may give up, each in a goroutine of its own. It
// is safe for concurrent use.
type calls struct {
	slots chan struct{} // holds a value for each call under way

	mu      sync.Mutex
	running int           // guarded by mu
	idle    chan struct{} // guarded by mu; closed when none is running; nil if nobody waits for that
}

func newCalls() *calls { return &calls{slots: make(chan struct{}, maxCalls)} }

// begin waits until a call may be made.
func (l *calls) begin(ctx context.Context) error {
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	l.began()
	return nil
}

func (l *calls) end() {
	<-l.slots
	l.ends()
}

func (l *calls) began() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running++
}

func (l *calls) ends() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running--; l.running == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

// ended is closed when no call is under way; nil if none is now.
func (l *calls) ended() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running == 0 {
		return nil
	}
	if l.idle == nil {
		l.idle = make(chan struct{})
	}
	return l.idle
}

// Promptly makes a call and returns its result, or the error of ctx as soon as ctx ends. The client
// notices the end of ctx only until it waits for a reply. A call that is given up goes on, at the
// latest until the client's timeouts; it must leave alone what its caller has.
//
// A panic in the call, such as that of a hook of the client, is a *PanicError.
//
// Callers that give up their calls by themselves do not need it: see Script.Awaited.
func Promptly[T any](ctx context.Context, c *Client, call func(ctx context.Context) (T, error)) (T, error) {
	if ctx.Done() == nil {
		return guarded(ctx, call)
	}
	var none T
	if err := c.calls.begin(ctx); err != nil {
		return none, c.explainEnd(err)
	}
	return abandonable(ctx, c, call, c.calls.end)
}

// abandonable is Promptly for a call that has begun; end ends it.
func abandonable[T any](ctx context.Context, c *Client, call func(ctx context.Context) (T, error), end func()) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	done := make(chan result, 1) // so nobody has to read it
	go func() {                  // ends with the call, which the client's timeouts end
		defer end()
		value, err := guarded(ctx, call)
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, c.explainEnd(context.Cause(ctx))
	}
}

// guarded makes a call, and returns its panic as a *PanicError.
func guarded[T any](ctx context.Context, call func(ctx context.Context) (T, error)) (value T, err error) {
	defer recovered(&err)
	return call(ctx)
}

// Go runs a function in a goroutine that makes calls for others. WaitIdle waits for it, too.
func (c *Client) Go(send func()) {
	c.calls.began()
	go func() {
		defer c.calls.ends()
		send()
	}()
}

// explainEnd adds to the end of a context what is known of why Redis has not answered before.
func (c *Client) explainEnd(cause error) error { return fmt.Errorf("%w: %w", cause, c.WhyNoAnswer()) }

// WaitIdle waits until no call is under way that its caller has given up, or ctx ends.
func (c *Client) WaitIdle(ctx context.Context) error {
	ended := c.calls.ended()
	if ended == nil {
		return nil
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
