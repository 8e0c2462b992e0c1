package queue

import (
	"context"
	"fmt"
	"sync"
)

// maxCalls is how many calls that can be given up a Store makes at once. The client usually has
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
func (c *calls) begin(ctx context.Context) error {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running++
	return nil
}

func (c *calls) end() {
	<-c.slots
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running--; c.running == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// ended is closed when no call is under way; nil if none is now.
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

// promptly makes a call and returns its result, or the error of ctx as soon as ctx ends. The client
// heeds the end of ctx only until it waits for a reply. A call that is given up goes on, at the
// latest until the client's timeouts; it must leave alone what its caller has.
//
// Callers that give up their calls by themselves need it not: see script.awaited.
func promptly[T any](ctx context.Context, s *Store, call func(ctx context.Context) (T, error)) (T, error) {
	if ctx.Done() == nil {
		return call(ctx)
	}
	type result struct {
		value T
		err   error
	}
	var none T
	if err := s.calls.begin(ctx); err != nil {
		return none, s.silent(err)
	}
	done := make(chan result, 1) // so nobody has to read it
	go func() {                  // ends with the call, which the client's timeouts end
		defer s.calls.end()
		value, err := call(ctx)
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, s.silent(context.Cause(ctx))
	}
}

// silent adds to the end of a context what is known of why Redis has not answered before.
func (s *Store) silent(cause error) error { return fmt.Errorf("%w: %w", cause, s.Silence()) }

// Rest waits until no call is under way that its caller has given up, or ctx ends.
func (s *Store) Rest(ctx context.Context) error {
	ended := s.calls.ended()
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
