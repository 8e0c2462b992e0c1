package delivery

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redisdelay/watermill-redisdelay/observe"
)

func TestARecoveredListenerRetriesFailingClaims(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(0)
		r := run(t, g)
		pass(time.Second)
		g.setHook(func(string) error { return errDown })
		g.hints <- 0
		pass(30 * time.Second)
		for before := g.claims(); g.claims() == before; { // the next pause of 2s or more begins
			pass(time.Millisecond)
		}
		g.setHook(nil)
		g.add(1)
		start := time.Now()
		g.silent <- struct{}{}
		g.hints <- 0
		(<-r.Messages()).Ack()
		assert.Less(t, time.Since(start), 1500*time.Millisecond)
	})
}

func TestARecoveredClaimRetriesAFailingListener(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(0)
		run(t, g)
		pass(time.Second)
		g.setHook(func(string) error { return errDown })
		pass(testPoll + time.Second)
		g.view(func() { assert.Zero(t, g.retries) })
		g.setHook(nil)
		pass(3 * time.Second)
		g.view(func() { assert.Equal(t, 1, g.retries) })
	})
}

func TestRunWaitsUntilItsListenersAreClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(0)
		r := run(t, g)
		pass(time.Second)
		r.end(t)
		g.view(func() { assert.True(t, g.listenerClosed) })
	})
}

// TestASlowObserverDoesNotDelayNotifications blocks the observer in the report of a failure.
func TestASlowObserverDoesNotDelayNotifications(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g, stuck := newFakeGroup(0), make(chan struct{})
		failures := 0
		r := run(t, g, func(c *Config) {
			c.Observer.Failed = func(observe.Failed) {
				failures++
				<-stuck
			}
		})
		g.hints <- 0
		pass(time.Millisecond)
		for range 3 {
			g.silent <- struct{}{}
			pass(time.Millisecond)
		}
		g.add(1)
		start := time.Now()
		g.hints <- 0
		(<-r.Messages()).Ack()
		assert.Zero(t, time.Since(start))
		close(stuck)
		r.end(t)
		assert.Equal(t, 2, failures, "the first, and the last of those that came meanwhile")
	})
}
