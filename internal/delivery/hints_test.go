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
		h.found(0, testPoll, 0)
		pass(testPoll)
		h.reset()
		for range 3 {
			h.notified(queue.Hint{In: testPoll, Claimed: true})
		}
		h.found(0, testPoll, 0)
		assert.Greater(t, h.wait(), testPoll/2)
		assert.LessOrEqual(t, h.wait(), testPoll)
	})
}

// TestAClaimIsSentEarlierToADistantRedis because messages are due by the clock of Redis.
func TestAClaimIsSentEarlierToADistantRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const in = 100 * time.Millisecond
		h := newHints(Config{PollInterval: testPoll})
		found := func(next, took time.Duration) time.Duration {
			h.reset()
			h.found(0, next, took)
			return h.wait()
		}
		assert.Equal(t, in-5*time.Millisecond+rttMargin, found(in, 5*time.Millisecond))
		h.reset()
		h.notified(queue.Hint{In: in})
		assert.Equal(t, in-5*time.Millisecond+rttMargin, h.wait())
		assert.Equal(t, time.Duration(0), found(4*time.Millisecond, 5*time.Millisecond))
		assert.Equal(t, in, found(in, rttMargin), "Redis is near, and was busy before")

		for range 300 {
			found(in, 5*time.Millisecond)
		}
		assert.Equal(t, in-5*time.Millisecond+rttMargin, found(in, 5*time.Millisecond), "it has become far")
	})
}
