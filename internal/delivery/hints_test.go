package delivery

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

func TestNotificationsDuringAClaimCauseNoOtherClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHints(Config{PollInterval: testPoll})
		h.reset()
		h.found(0, testPoll)
		pass(testPoll)
		h.reset()
		for range 3 {
			h.hear(queue.Hint{In: testPoll, Looked: true})
		}
		h.found(0, testPoll)
		assert.Greater(t, h.wait(), testPoll/2)
		assert.LessOrEqual(t, h.wait(), testPoll)
	})
}

func TestANotificationMakesAConsumerLookEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHints(Config{PollInterval: testPoll})
		h.reset()
		h.found(0, testPoll)
		start := time.Now()
		go func() {
			pass(time.Second)
			h.hear(queue.Hint{In: time.Second, Looked: true})
		}()
		assert.True(t, h.await(t.Context()))
		assert.Equal(t, 2*time.Second, time.Since(start))
	})
}
