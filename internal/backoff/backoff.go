// Package backoff spaces out attempts at something that keeps failing.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff doubles its pauses from Min to Max and varies each, so that many
// clients of one server do not come back in step. The zero value is not useful;
// it is for one goroutine.
type Backoff struct {
	Min, Max time.Duration
	attempts int
}

// Next returns the next pause: between the current step and half of it more,
// never below Min.
func (b *Backoff) Next() time.Duration {
	step := Exponential(b.Min, b.Max, b.attempts)
	b.attempts++
	return step + rand.N(step/2+1)
}

// Reset starts again at Min, after a success.
func (b *Backoff) Reset() { b.attempts = 0 }

// Wait pauses for the next step. It returns false at once when ctx ends.
func (b *Backoff) Wait(ctx context.Context) bool {
	timer := time.NewTimer(b.Next())
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Exponential is low doubled n times, at most high.
func Exponential(low, high time.Duration, n int) time.Duration {
	if n >= 62 || low > high>>n {
		return high
	}
	return low << n
}
