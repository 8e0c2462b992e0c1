package backoff

import (
	"context"
	"math"
	"testing"
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
