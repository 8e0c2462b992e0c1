package delivery

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAListenerThatWorksAgainTriggersFailingClaims(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(0)
		r := run(g)
		pass(time.Second)
		g.setHook(func(string) error { return errAway })
		g.hints <- 0
		pass(30 * time.Second)
		for before := g.claims(); g.claims() == before; { // the next pause of 2s or more begins
			pass(time.Millisecond)
		}
		g.setHook(nil)
		g.add(1)
		start := time.Now()
		g.deaf <- struct{}{} // the listener connects anew, half a second later or more
		g.hints <- 0
		(<-r.Messages()).Ack()
		assert.Less(t, time.Since(start), 1500*time.Millisecond)
		r.stop()
		require.NoError(t, <-r.ended)
	})
}

func TestClaimsThatWorkAgainTriggerAFailingListener(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(0)
		r := run(g)
		for range 7 { // so that the next pause is 16s or more
			g.deaf <- struct{}{}
		}
		g.hints <- 0 // for the new listener
		g.setHook(func(string) error { return errAway })
		pass(testPoll + time.Second)
		g.setHook(nil)
		pass(3 * time.Second)
		assert.Empty(t, g.hints)
		r.stop()
		require.NoError(t, <-r.ended)
	})
}
