package script

import (
	"context"
	"sync"
)

// Shared is a call that many callers need. Callers that arrive while it is under way share its result. The zero value
// is ready to use.
type Shared struct {
	mu      sync.Mutex
	current *sharedCall // guarded by mu; the call under way
}

type sharedCall struct {
	done chan struct{} // closed when the fields below are set
	err  error
	left bool // its caller's context has ended, or it has panicked, so the result is of no use to other callers
}

// Do makes the call, or waits for the one under way.
func (s *Shared) Do(ctx context.Context, call func(context.Context) error) error {
	for {
		s.mu.Lock()
		current := s.current
		if current == nil {
			current = &sharedCall{done: make(chan struct{})}
			s.current = current
			s.mu.Unlock()
			return s.lead(ctx, current, call)
		}
		s.mu.Unlock()
		select {
		case <-current.done:
			if !current.left {
				return current.err
			}
		case <-ctx.Done():
			return EndOf(ctx)
		}
	}
}

// lead makes the call.
func (s *Shared) lead(ctx context.Context, current *sharedCall, call func(context.Context) error) error {
	current.left = true
	defer func() {
		s.mu.Lock()
		s.current = nil
		s.mu.Unlock()
		close(current.done)
	}()
	current.err = call(ctx)
	current.left = current.err != nil && ctx.Err() != nil
	return current.err
}
