package publish

import (
	"context"
	"sync"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

const (
	// maxBackground is how many calls may be under way at once. The Redis client usually has
	// fewer connections; the limit is for calls that hang.
	maxBackground = 64

	// maxTries is how many of them may be calls for which nobody waits.
	maxTries = 16
)

// background makes calls to Redis that may outlive their callers, such as checks of topics, each in a goroutine of its
// own. It owns the goroutines until they end, at the latest by the Redis client's timeouts. It is safe for concurrent use.
type background struct {
	slots   chan struct{} // holds a value for each call under way
	tries   chan struct{} // holds a value for each of those that try has started
	closing context.Context
	cancel  context.CancelFunc

	mu      sync.Mutex
	closed  bool           // guarded by mu
	running sync.WaitGroup // added to under mu, unless closed
}

func newBackground() *background {
	closing, cancel := context.WithCancel(context.Background())
	return &background{slots: make(chan struct{}, maxBackground), tries: make(chan struct{}, maxTries), closing: closing, cancel: cancel}
}

// start starts a call once fewer than maxBackground are under way. close ends the call's
// context. With an error, that of ctx or ErrClosed, the call is not made.
func (b *background) start(ctx context.Context, call func(context.Context)) error {
	select {
	case b.slots <- struct{}{}:
	case <-ctx.Done():
		return script.EndOf(ctx)
	}
	if !b.run(call) {
		return ErrClosed
	}
	return nil
}

// try starts a call for which nobody waits, unless too many are under way or after close, and returns whether it has.
func (b *background) try(call func(context.Context)) bool {
	select {
	case b.tries <- struct{}{}:
	default:
		return false
	}
	started := false
	select {
	case b.slots <- struct{}{}:
		started = b.run(func(ctx context.Context) {
			defer func() { <-b.tries }()
			call(ctx)
		})
	default:
	}
	if !started {
		<-b.tries
	}
	return started
}

// run makes a call that has a slot, which it frees, unless after close.
func (b *background) run(call func(context.Context)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		<-b.slots
		return false
	}
	b.running.Go(func() {
		defer func() { <-b.slots }()
		call(b.closing)
	})
	return true
}

// close waits until no call is under way, or ctx ends. Later calls fail with ErrClosed.
func (b *background) close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.cancel()
	return await(ctx, &b.running)
}

// await waits for goroutines, or until ctx ends.
func await(ctx context.Context, running *sync.WaitGroup) error {
	idle := make(chan struct{})
	go func() { // ends with the last of the goroutines
		running.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return script.EndOf(ctx)
	}
}
