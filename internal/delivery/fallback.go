package delivery

import (
	"math"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
)

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
func (d *fallbackPolling) start(poll time.Duration) bool {
	if !d.at.IsZero() {
		return false
	}
	if time.Since(d.stoppedAt) >= recovery {
		d.polls = 0
	}
	d.next(poll)
	return true
}

// stop ends polling: notifications work.
func (d *fallbackPolling) stop() {
	if !d.at.IsZero() || d.stoppedAt.IsZero() {
		d.at, d.stoppedAt = time.Time{}, time.Now()
	}
}

// polling records that the consumer polls now.
func (d *fallbackPolling) polling(poll time.Duration) {
	if !d.at.IsZero() {
		d.polls++
		d.next(poll)
	}
}

func (d *fallbackPolling) next(poll time.Duration) {
	d.at = time.Now().Add(jitter(backoff.Exponential(min(fallbackInterval, poll), poll, max(0, d.polls-maxFallbackPolls))))
}

// notified reports whether notifications work.
func (d *fallbackPolling) notified() bool { return d.at.IsZero() && !d.stoppedAt.IsZero() }

// wait is how long to wait until the next poll.
func (d *fallbackPolling) wait() time.Duration {
	if d.at.IsZero() {
		return math.MaxInt64
	}
	return time.Until(d.at)
}
