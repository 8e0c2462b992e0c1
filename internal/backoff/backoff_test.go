package backoff

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestStepsDoubleUpToTheLimit(t *testing.T) {
	b := Backoff{Min: 100 * time.Millisecond, Max: time.Second}
	for _, step := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
		pause := b.Next()
		assert.GreaterOrEqual(t, pause, step*time.Millisecond)
		assert.LessOrEqual(t, pause, step*time.Millisecond*3/2)
	}
	b.Reset()
	assert.Less(t, b.Next(), 200*time.Millisecond)
}

func TestExponentialNeverOverflows(t *testing.T) {
	for _, n := range []int{0, 10, 33, 62, 63, 64, math.MaxInt} {
		step := Exponential(time.Second, math.MaxInt64, n)
		assert.GreaterOrEqual(t, step, time.Second, "step %d", n)
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b := Backoff{Min: time.Hour, Max: time.Hour}
	assert.False(t, b.Wait(ctx))
}

func TestSpacingKeepsAGapBetweenTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spacing, start := NewSpacing(time.Second), time.Now()
		var loops sync.WaitGroup
		var mu sync.Mutex
		var taken []time.Duration
		for range 3 {
			loops.Go(func() {
				assert.True(t, spacing.Wait(t.Context()))
				mu.Lock()
				defer mu.Unlock()
				taken = append(taken, time.Since(start))
			})
		}
		loops.Wait()
		assert.Equal(t, []time.Duration{0, time.Second, 2 * time.Second}, taken)

		time.Sleep(10 * time.Second) //nolint:forbidigo // advances the bubble's clock
		start = time.Now()
		assert.True(t, spacing.Wait(t.Context()))
		assert.Zero(t, time.Since(start), "the last turn was long ago")
	})
}

func TestSpacingWaitEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	spacing := NewSpacing(time.Hour)
	assert.True(t, spacing.Wait(ctx))
	cancel()
	assert.False(t, spacing.Wait(ctx))
}
