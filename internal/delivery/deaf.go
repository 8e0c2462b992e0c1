package delivery

import (
	"math"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
)

const (
	// A consumer that hears no notifications looks for itself each deafPoll, so that nothing is
	// late while they fail for a moment. After maxLooks of these it looks less and less, down to
	// once in a poll interval. Once they have come for the time of recovery, all this begins anew.
	deafPoll = 150 * time.Millisecond
	maxLooks = 70
	recovery = 10 * time.Second
)

// deafness is when a consumer that hears no notifications looks for itself. It is guarded by
// hints.mu.
type deafness struct {
	at    time.Time // when to look at the latest; zero while notifications come
	heard time.Time // since when they come
	looks int       // since they have come for a while
}

// begins says that notifications do not come. It returns whether they came before.
func (d *deafness) begins(poll time.Duration) bool {
	if !d.at.IsZero() {
		return false
	}
	if time.Since(d.heard) >= recovery {
		d.looks = 0
	}
	d.next(poll)
	return true
}

// ends says that notifications come.
func (d *deafness) ends() {
	if !d.at.IsZero() || d.heard.IsZero() {
		d.at, d.heard = time.Time{}, time.Now()
	}
}

// looking says that the consumer looks now.
func (d *deafness) looking(poll time.Duration) {
	if !d.at.IsZero() {
		d.looks++
		d.next(poll)
	}
}

func (d *deafness) next(poll time.Duration) {
	d.at = time.Now().Add(spread(backoff.Exponential(min(deafPoll, poll), poll, max(0, d.looks-maxLooks))))
}

// wait is how long to wait until the next look.
func (d *deafness) wait() time.Duration {
	if d.at.IsZero() {
		return math.MaxInt64
	}
	return time.Until(d.at)
}
