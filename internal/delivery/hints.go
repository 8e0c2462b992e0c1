package delivery

import (
	"context"
	"sync"
	"time"
)

// hints gathers when something may be due, from claims, nacks and notifications.
type hints struct {
	mu      sync.Mutex
	at      time.Time     // guarded by mu; zero: at once
	known   bool          // guarded by mu; whether at says anything
	changed chan struct{} // signalled when at has become earlier
}

func newHints() hints { return hints{changed: make(chan struct{}, 1), known: true} }

// reset forgets all hints: a claim is about to look. Hints that come while it
// looks count again.
func (h *hints) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known = false
}

// add says that something may be due in a while.
func (h *hints) add(in time.Duration) {
	at := time.Now().Add(in)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.known && !at.Before(h.at) {
		return
	}
	h.at, h.known = at, true
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// wait is how long nothing will be due.
func (h *hints) wait() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Until(h.at)
}

// await blocks until something may be due; false when ctx ends.
func (h *hints) await(ctx context.Context) bool {
	for ctx.Err() == nil {
		wait := h.wait()
		if wait <= 0 {
			return true
		}
		timer := time.NewTimer(wait)
		select {
		case <-h.changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return false
}
