package redisdelay

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// DelayError is returned for an invalid delay.
type DelayError struct {
	// MetadataKey is delay.DelayedUntilKey or delay.DelayedForKey. An argument of Defer or Reschedule counts as the
	// metadata that delay.Message would set.
	MetadataKey string
	Value       string
	Err         error // for logs
}

func (e *DelayError) Error() string {
	return fmt.Sprintf("metadata %s: %q: %v", e.MetadataKey, e.Value, e.Err)
}

func (e *DelayError) Unwrap() error { return e.Err }

// Backoff returns a SubscriberConfig.NackDelay that begins with initial, at least MinRedeliveryDelay, and grows by
// factor with each attempt up to longest, at least initial. A factor below 1, or NaN, counts as 1. Each delay is
// lengthened by up to half at random, but not beyond longest, so that messages that failed together are not retried
// together. The function is safe for concurrent use.
func Backoff(initial, longest time.Duration, factor float64) func(attempt int) time.Duration {
	initial = max(initial, MinRedeliveryDelay)
	longest = max(longest, initial)
	if !(factor >= 1) { // also of NaN
		factor = 1
	}
	return func(attempt int) time.Duration {
		step := longest
		if grown := float64(initial) * math.Pow(factor, float64(max(attempt, 1)-1)); grown < float64(longest) {
			step = time.Duration(grown)
		}
		return step + rand.N(min(step/2, longest-step)+1)
	}
}
