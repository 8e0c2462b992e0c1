package delivery

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

const (
	// A consumer stays behind a due time by minYield and up to maxYield more, to let another
	// consumer of the group claim first and tell that it has. Otherwise all idle consumers
	// of a group would claim the same message.
	minYield = 2 * time.Millisecond
	maxYield = 12 * time.Millisecond
)

// hints gathers when something may be due, from claims, nacks and notifications.
type hints struct {
	poll time.Duration // immutable; the longest time between two claims

	mu      sync.Mutex
	at      time.Time     // guarded by mu; zero: at once
	known   bool          // guarded by mu; whether at says anything
	latest  time.Time     // guarded by mu; when to claim at the latest, whatever others say
	yield   time.Duration // guarded by mu; up to how far to stay behind
	changed chan struct{} // signalled when at has become earlier
}

func newHints(poll time.Duration) hints {
	return hints{poll: poll, changed: make(chan struct{}, 1), known: true}
}

// reset forgets all hints: a claim is about to look. Hints that come while it
// looks count again.
func (h *hints) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known = false
	h.latest = time.Now().Add(spread(h.poll))
}

// spread takes up to an eighth off a poll interval, so that many consumers do not all poll
// at once.
func spread(poll time.Duration) time.Duration { return poll - rand.N(poll/8+1) }

// found notes what a claim got, and when the next message is due. A consumer that finds
// messages goes first the next time, too.
func (h *hints) found(messages int, next time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if messages > 0 {
		h.yield = 0
	}
	if next > 0 {
		next += h.lag()
	}
	h.earlier(next)
}

// hear notes what a notification says. What another consumer says after it has looked
// replaces older hints; if it found something, it may go first the next time. Any program
// may say anything, so no claim is put off beyond the poll interval.
func (h *hints) hear(hint queue.Hint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if hint.Found > 0 {
		h.yield = maxYield
	}
	if hint.Looked && h.known {
		before := h.at
		if h.at = time.Now().Add(hint.In + h.lag()); h.at.After(h.latest) {
			h.at = h.latest
		}
		if h.at.Before(before) {
			tell(h.changed)
		}
		return
	}
	h.earlier(hint.In + h.lag())
}

// add says that something may be due in a while.
func (h *hints) add(in time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.earlier(in)
}

// earlier counts a hint if it is earlier than those before. The caller holds mu.
func (h *hints) earlier(in time.Duration) {
	at := time.Now().Add(in)
	if h.known && !at.Before(h.at) {
		return
	}
	h.at, h.known = at, true
	tell(h.changed)
}

// lag is how far to stay behind a due time. The caller holds mu.
func (h *hints) lag() time.Duration {
	if h.yield == 0 {
		return 0
	}
	return minYield + rand.N(h.yield) // time to hear from another; random, so as not to look all at once
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
