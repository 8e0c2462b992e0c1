package publish

import (
	"context"
	"sync"
)

// maxCalls is how many calls may be under way at once. The Redis client has fewer
// connections, as a rule; the bound is for calls that hang.
const maxCalls = 64

// Calls runs calls to Redis that cannot be interrupted, each in a goroutine of its own,
// so that whoever waits for one can leave at any time. It owns the goroutines until they
// end: the Redis client's timeouts see to that. It is safe for concurrent use.
type Calls struct {
	slots   chan struct{} // holds a value for each call under way
	closing context.Context
	cancel  context.CancelFunc

	mu      sync.Mutex
	closed  bool           // guarded by mu
	running sync.WaitGroup // added to under mu, unless closed
}

// NewCalls returns Calls.
func NewCalls() *Calls {
	closing, cancel := context.WithCancel(context.Background())
	return &Calls{slots: make(chan struct{}, maxCalls), closing: closing, cancel: cancel}
}

// Go starts a call when there is room for it. The call's context ends with Close. The
// error is that of ctx, or ErrClosed; then the call is not made.
func (c *Calls) Go(ctx context.Context, call func(context.Context)) error {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		<-c.slots
		return ErrClosed
	}
	c.running.Go(func() {
		defer func() { <-c.slots }()
		call(c.closing)
	})
	return nil
}

// Do makes a call and returns its error, or that of ctx when it ends first. Then the call
// may still be made, or go on.
func (c *Calls) Do(ctx context.Context, call func(context.Context) error) error {
	done := make(chan error, 1)
	if err := c.Go(ctx, func(closing context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(closing, cancel)()
		done <- call(ctx)
	}); err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close waits until no call is under way, or ctx ends. Later calls fail with ErrClosed.
func (c *Calls) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	return await(ctx, &c.running)
}

// await waits for goroutines, or until ctx ends.
func await(ctx context.Context, running *sync.WaitGroup) error {
	idle := make(chan struct{})
	go func() { // ends with the last of those
		running.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
