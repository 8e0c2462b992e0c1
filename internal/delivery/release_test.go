package delivery

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

func TestAPauseReleasesBufferedMessagesAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const total, learned = 520, 500
		g := newFakeGroup(total)
		r := run(t, g)
		learn(r, learned)
		slow := <-r.Messages()
		pass(time.Millisecond)
		require.Positive(t, g.held(total, learned+1), "messages held ahead")
		g.paused <- struct{}{}
		pass(time.Millisecond)
		assert.Zero(t, g.held(total, learned+1))
		slow.Ack()
	})
}

func TestClaimsWaitForPendingReleases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(2000)
		g.latency = time.Millisecond
		r := run(t, g)
		for range 500 {
			(<-r.Messages()).Ack()
		}
		slow := <-r.Messages()
		g.setHook(failing("release", errDown))
		pass(maxHold + 10*time.Millisecond)
		slow.Ack()
		var before int
		g.view(func() { before = len(g.requests) })
		pass(time.Second)
		g.view(func() { assert.Len(t, g.requests, before, "later messages would overtake those given back") })
		g.setHook(nil)
		pass(2 * maxBackoff)
		g.view(func() {
			assert.Greater(t, len(g.requests), before)
			assert.NotEmpty(t, g.released)
		})
	})
}

func TestMessagesOfAClaimInProgressAreReleasedWithTheBuffer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(500)
		g.latency = time.Millisecond
		r := run(t, g)
		learn(r, 500)
		pass(time.Second)
		g.add(2) // the first is handed out, the second is held
		g.hints <- 0
		slow := <-r.Messages()
		pass(5 * time.Millisecond)
		require.Equal(t, 1, g.held(502, 501))
		g.setHook(func(call string) error {
			if call == "claim" {
				pass(2 * maxHold)
			}
			return nil
		})
		g.add(1)
		g.hints <- 0
		pass(maxHold) // the second is given back, while a claim is under way
		g.view(func() { require.Len(t, g.released, 1) })
		pass(2 * maxHold)
		g.view(func() {
			assert.Equal(t, []string{"0501", "0502"}, mapped(g.released, func(r queue.Release) string { return r.ID }))
		})
		slow.Ack()
	})
}
