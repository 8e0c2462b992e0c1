// Package backoff spaces out attempts at something that keeps failing.
package backoff

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Backoff doubles a step from Min to Max and lengthens each pause by up to half
// of it at random, so that many clients of one server do not retry in step. The
// longest pause is 1.5 times Max. The zero value is not useful; it is for one
// goroutine.
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
func (b *Backoff) Wait(ctx context.Context) bool { return wait(ctx, b.Next(), nil) }

// WaitUnless is Wait that also ends when hope says that the next attempt will probably
// succeed.
func (b *Backoff) WaitUnless(ctx context.Context, hope <-chan struct{}) bool {
	return wait(ctx, b.Next(), hope)
}

// Sleep pauses for a time. It returns false at once when ctx ends.
func Sleep(ctx context.Context, d time.Duration) bool { return wait(ctx, d, nil) }

// SleepUnless is Sleep that also ends when hope is closed.
func SleepUnless(ctx context.Context, d time.Duration, hope <-chan struct{}) bool {
	return wait(ctx, d, hope)
}

func wait(ctx context.Context, d time.Duration, hope <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-hope:
		return true
	case <-ctx.Done():
		return false
	}
}

// Spacing keeps a gap between the attempts of several loops that fail for the same reason. It is safe for concurrent use.
type Spacing struct {
	gap time.Duration // immutable

	mu   sync.Mutex
	last time.Time // guarded by mu; of the last attempt, which may be in the future
}

// NewSpacing returns a Spacing with a gap.
func NewSpacing(gap time.Duration) *Spacing { return &Spacing{gap: gap} }

// Wait blocks until the caller may make its attempt. It returns false at once when ctx ends.
func (s *Spacing) Wait(ctx context.Context) bool {
	return wait(ctx, time.Until(s.next(time.Now())), nil)
}

func (s *Spacing) next(now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = latest(now, s.last.Add(s.gap))
	return s.last
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Exponential is low doubled n times, at most high.
func Exponential(low, high time.Duration, n int) time.Duration {
	if n >= 62 || low > high>>n {
		return high
	}
	return low << n
}
