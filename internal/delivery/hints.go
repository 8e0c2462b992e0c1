package delivery

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

const (
	// A consumer claims minYield after a due time, plus up to maxYield, to let another
	// consumer of the group claim first and notify it. Otherwise all idle consumers of a group
	// would claim the same message.
	minYield = 2 * time.Millisecond
	maxYield = 12 * time.Millisecond

	// The other consumer's claim and its notification each take half a round trip. The part of a
	// round trip above localRTT, up to maxExtraRTT, is added to the time that a consumer yields.
	localRTT    = time.Millisecond
	maxExtraRTT = 50 * time.Millisecond

	// rttMargin is the part of a round trip that is not subtracted from the wait, because a claim that arrives too early
	// must be repeated.
	rttMargin = 300 * time.Microsecond
)

// hints collects, from claims, nacks and notifications, when something may be due.
type hints struct {
	// immutable
	poll, quiet time.Duration // the longest time between two claims without and with notifications

	mu       sync.Mutex
	at       time.Time       // guarded by mu; when something may be due; zero: at once
	known    bool            // guarded by mu; at is valid
	latest   time.Time       // guarded by mu; when to poll
	yield    time.Duration   // guarded by mu; limit of yieldDelay
	rtt      time.Duration   // guarded by mu; about how long a claim is under way at least
	fallback fallbackPolling // guarded by mu
	changed  chan struct{}   // signaled when at has become earlier
}

// never is how long to wait if nothing is scheduled.
const never = 100 * 365 * 24 * time.Hour

func newHints(c Config) hints {
	return hints{
		poll: c.PollInterval, quiet: c.quietInterval(),
		changed: make(chan struct{}, 1), known: true,
	}
}

// reset forgets all hints before a claim. Hints that come during the claim count again.
func (h *hints) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known = false
	interval := h.poll
	if h.fallback.notified() {
		interval = h.quiet
	}
	h.latest = time.Now().Add(jitter(interval))
	h.fallback.polling(h.poll)
}

// jitter shortens a poll interval by up to an eighth, so that consumers do not all poll at once.
func jitter(poll time.Duration) time.Duration { return poll - rand.N(poll/8+1) }

// found records how many messages a claim got, when the next one is due (negative: never), and how long
// the claim took. A consumer that found messages does not yield the next time.
func (h *hints) found(messages int, next, took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if messages > 0 {
		h.yield = 0
	}
	if h.rtt += h.rtt / 64; h.rtt == 0 || took < h.rtt { // round trips may become longer
		h.rtt = took
	}
	switch {
	case next < 0:
		next = never
	case next > 0:
		next = h.after(next)
	}
	h.earlier(next)
}

// after returns how long to wait before claiming a message that was due in this time when Redis replied. It subtracts
// the time that the reply and the claim need, and adds the yield delay. The caller holds mu.
func (h *hints) after(in time.Duration) time.Duration {
	return max(0, in-max(0, h.rtt-rttMargin)) + h.yieldDelay()
}

// notified applies the hint of a notification. The hint of a consumer that has claimed replaces older
// hints. If that consumer found messages, this one yields to it the next time. Any program can send
// notifications, so they postpone no claim by more than the poll interval.
func (h *hints) notified(hint queue.Hint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if hint.In < 0 {
		hint.In = never
	}
	if hint.Found > 0 {
		h.yield = maxYield
	}
	if hint.Claimed && h.known {
		before := h.at
		h.at = time.Now().Add(h.after(hint.In))
		switch {
		case h.at.Before(before):
			signal(h.changed)
		case before.Before(h.latest): // the consumer was about to claim
			if soon := time.Now().Add(jitter(h.poll)); soon.Before(h.latest) {
				h.latest = soon
				signal(h.changed)
			}
		}
		return
	}
	h.earlier(h.after(hint.In))
}

// listening records whether notifications work from now on.
func (h *hints) listening(works bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if works {
		h.fallback.stop()
		return
	}
	if h.fallback.start(h.poll) {
		signal(h.changed)
	}
}

// add records that something may be due after this time.
func (h *hints) add(in time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.earlier(in)
}

// earlier keeps a hint if it is earlier than the others. The caller holds mu.
func (h *hints) earlier(in time.Duration) {
	at := time.Now().Add(in)
	if h.known && !at.Before(h.at) {
		return
	}
	h.at, h.known = at, true
	signal(h.changed)
}

// yieldDelay is how long after a due time to claim. The caller holds mu.
func (h *hints) yieldDelay() time.Duration {
	if h.yield == 0 {
		return 0
	}
	extra := min(maxExtraRTT, max(0, h.rtt-localRTT))
	return minYield + extra + rand.N(h.yield+2*extra) // random, so that consumers do not all claim at once
}

// wait is how long to wait for the next due time, or poll.
func (h *hints) wait() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return min(time.Until(h.at), time.Until(h.latest), h.fallback.wait())
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

const (
	// A consumer without notifications polls every fallbackInterval, so that a short outage delays
	// no message. After maxFallbackPolls it polls less and less, down to once in a poll interval.
	// Once notifications have worked for recovery, the count starts again.
	fallbackInterval = 150 * time.Millisecond
	maxFallbackPolls = 70
	recovery         = 10 * time.Second
)

// fallbackPolling is when a consumer without notifications polls. It is guarded by hints.mu.
type fallbackPolling struct {
	at        time.Time // when to poll; zero while notifications work
	stoppedAt time.Time // when notifications began to work
	polls     int       // since notifications worked for a while
}

// start begins polling: notifications have failed. It returns whether they worked before.
func (f *fallbackPolling) start(poll time.Duration) bool {
	if !f.at.IsZero() {
		return false
	}
	if time.Since(f.stoppedAt) >= recovery {
		f.polls = 0
	}
	f.next(poll)
	return true
}

// stop ends polling: notifications work.
func (f *fallbackPolling) stop() {
	if !f.at.IsZero() || f.stoppedAt.IsZero() {
		f.at, f.stoppedAt = time.Time{}, time.Now()
	}
}

// polling records that the consumer polls now.
func (f *fallbackPolling) polling(poll time.Duration) {
	if !f.at.IsZero() {
		f.polls++
		f.next(poll)
	}
}

func (f *fallbackPolling) next(poll time.Duration) {
	f.at = time.Now().Add(jitter(backoff.Exponential(min(fallbackInterval, poll), poll, max(0, f.polls-maxFallbackPolls))))
}

// notified reports whether notifications work.
func (f *fallbackPolling) notified() bool { return f.at.IsZero() && !f.stoppedAt.IsZero() }

// wait is how long to wait until the next poll.
func (f *fallbackPolling) wait() time.Duration {
	if f.at.IsZero() {
		return math.MaxInt64
	}
	return time.Until(f.at)
}
