package cli

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestWatchRepeatsTheStats(t *testing.T) {
	s := newStage(t)
	s.publish("orders", "1", "", "", time.Hour)
	waits := 0
	s.wait = func(_ context.Context, d time.Duration) error {
		assert.Equal(t, time.Second, d)
		if waits++; waits == 2 {
			return context.Canceled
		}
		s.publish("orders", "2", "", "", time.Hour)
		return nil
	}
	shown := lines(s.must("stats", "--watch", "-o", "json"))
	assert.Len(t, shown, 2)
	assert.Contains(t, shown[0], `"scheduled":1`)
	assert.Contains(t, shown[1], `"scheduled":2`)
}
