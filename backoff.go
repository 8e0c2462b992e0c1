package redisdelay

import (
	"math"
	"math/rand/v2"
	"time"
)

// Backoff returns a SubscriberConfig.NackDelay that begins with initial and grows by factor with
// each attempt, up to longest. Like the default one, it lengthens each delay by up to half, but not
// beyond longest, so that messages that failed together do not come back together.
//
// An initial below MinRedeliveryDelay counts as that, a longest below initial as initial, and a
// factor below 1 or NaN as 1: the delays stay the same. With any arguments and attempts, delays are
// from initial to longest. The function is safe for concurrent use.
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
