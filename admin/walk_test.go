package admin

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestRestLeavesHalfOfTheTimeToOthers(t *testing.T) {
	for name, c := range map[string]struct{ took, want time.Duration }{
		"as long as the calls took": {2 * time.Millisecond, 2 * time.Millisecond},
		"not for what had to wait":  {time.Second, maxRest},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				rest(t.Context(), c.took)
				assert.Equal(t, c.want, time.Since(start))
			})
		})
	}
}

func TestRestEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		start := time.Now()
		rest(ctx, maxRest)
		assert.Equal(t, time.Millisecond, time.Since(start))
	})
}
