package redisdelay_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

func TestBackoffGrowsFromItsInitialDelayToItsLongest(t *testing.T) {
	const s, forever = time.Second, time.Duration(math.MaxInt64)
	tests := map[string]struct {
		initial, longest time.Duration
		factor           float64
		attempt          int
		low, high        time.Duration
	}{
		"the first":                   {s, time.Minute, 2, 1, s, 1500 * time.Millisecond},
		"the third":                   {s, time.Minute, 2, 3, 4 * s, 6 * s},
		"a fraction":                  {s, time.Minute, 1.5, 3, 2250 * time.Millisecond, 3375 * time.Millisecond},
		"near the longest":            {s, 5 * s, 2, 3, 4 * s, 5 * s},
		"the longest":                 {s, 5 * s, 2, 9, 5 * s, 5 * s},
		"no attempt":                  {s, time.Minute, 2, 0, s, 1500 * time.Millisecond},
		"attempts below zero":         {s, time.Minute, 2, math.MinInt, s, 1500 * time.Millisecond},
		"very many attempts":          {s, forever, 2, math.MaxInt, forever, forever},
		"growing for very long":       {forever / 2, forever, 1.9, 2, forever / 2, forever},
		"an initial that is too low":  {-s, time.Minute, 2, 1, redisdelay.MinRedeliveryDelay, redisdelay.MinRedeliveryDelay * 3 / 2},
		"a longest below the initial": {s, time.Millisecond, 2, 4, s, s},
		"a factor below 1":            {s, time.Minute, 0.5, 4, s, 1500 * time.Millisecond},
		"a factor that is no number":  {s, time.Minute, math.NaN(), 4, s, 1500 * time.Millisecond},
		"a factor without end":        {s, time.Minute, math.Inf(1), 2, time.Minute, time.Minute},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			delay := redisdelay.Backoff(test.initial, test.longest, test.factor)
			seen := map[time.Duration]struct{}{}
			for range 1000 {
				got := delay(test.attempt)
				assert.GreaterOrEqual(t, got, test.low)
				assert.LessOrEqual(t, got, test.high)
				seen[got] = struct{}{}
			}
			assert.Equal(t, test.low != test.high, len(seen) > 1, "it varies where it may")
		})
	}
}
