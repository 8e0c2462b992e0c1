package delivery

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestAConsumerPollsWhileNotificationsAreLost: what is published meanwhile is not late.
func TestAConsumerPollsWhileNotificationsAreLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(0)
		r := run(t, g)
		g.hints <- 0
		pass(time.Second)
		g.silent <- struct{}{}
		for range 20 {
			pass(10 * time.Millisecond)
			g.add(1)
			start := time.Now()
			(<-r.Messages()).Ack()
			assert.LessOrEqual(t, time.Since(start), fallbackInterval)
		}
	})
}

// TestPollingSlowsDownDuringALongNotificationOutage even if notifications work for a moment again and again.
func TestPollingSlowsDownDuringALongNotificationOutage(t *testing.T) {
	for name, flaps := range map[string]bool{"down": false, "unstable": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newFakeGroup(0)
				run(t, g)
				const minutes = 10
				for range minutes * 60 {
					g.silent <- struct{}{}
					pass(500 * time.Millisecond)
					if flaps {
						g.hints <- testPoll
					}
					pass(500 * time.Millisecond)
				}
				limit := maxFallbackPolls + int(minutes*time.Minute/(testPoll*7/8)) + 10
				if flaps { // each time that it is heard again, it looks
					limit += minutes * 60
				}
				assert.LessOrEqual(t, g.claims(), limit)
			})
		})
	}
}

func TestANewNotificationOutageRestartsFastPolling(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(0)
		run(t, g)
		g.silent <- struct{}{}
		pass(time.Hour)
		g.hints <- testPoll
		pass(time.Hour)
		g.silent <- struct{}{}
		before := g.claims()
		pass(5 * time.Second)
		assert.GreaterOrEqual(t, g.claims()-before, int(5*time.Second/fallbackInterval))
	})
}
