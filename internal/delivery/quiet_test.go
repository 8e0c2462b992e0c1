package delivery

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redisdelay/watermill-redisdelay/internal/notify"
)

func TestTheQuietInterval(t *testing.T) {
	for name, c := range map[string]struct {
		poll, expiry, quiet, alive time.Duration
	}{
		"default":                      {5 * time.Second, 0, 30 * time.Second, time.Minute},
		"rare polls":                   {time.Minute, 0, time.Minute, 2 * time.Minute},
		"frequent polls":               {4 * time.Second, 0, 4 * time.Second, testLease},
		"of a Broadcast group":         {5 * time.Second, 50 * time.Second, 25 * time.Second, 50 * time.Second},
		"of a group that expires soon": {5 * time.Second, time.Second, 5 * time.Second, testLease},
		"of a group that expires late": {5 * time.Second, time.Hour, 30 * time.Second, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			config := Config{PollInterval: c.poll, PingInterval: notify.Interval, GroupExpiry: c.expiry, Lease: testLease}
			assert.Equal(t, c.quiet, config.quietInterval())
			assert.Equal(t, c.alive, config.alive())
		})
	}
}

// notified runs a subscription that receives notifications, and has claimed since.
func notified(t *testing.T, g *fakeGroup, change ...func(*Config)) *running {
	t.Helper()
	r := run(t, g, change...)
	g.hints <- 0
	pass(testPoll)
	return r
}

// TestNotificationsLimitIdleCommandsToOnePer20Seconds, all commands included.
func TestNotificationsLimitIdleCommandsToOnePer20Seconds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(0)
		g.partitions = 1
		topic := &fakeTopic{groups: []*fakeGroup{g}}
		runTopic(t, topic, present)
		g.hints <- 0
		pass(testPoll)
		before := g.claims() + topic.commands()
		pass(time.Hour)
		sent := g.claims() + topic.commands() - before
		assert.LessOrEqual(t, sent, int(time.Hour/(20*time.Second)))
		assert.LessOrEqual(t, longestSilence(g), quietPoll)
		assert.Empty(t, g.extended)
	})
}

func TestAConsumerPollsAsUsualUntilItReceivesNotifications(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(0)
		run(t, g)
		pass(time.Minute)
		assert.GreaterOrEqual(t, g.claims(), 12)
		g.hints <- 0
		pass(time.Millisecond)
		before := g.claims()
		pass(time.Minute)
		assert.LessOrEqual(t, g.claims()-before, 3)
	})
}

// TestALostNotificationConnectionTriggersAClaimAtOnce although the next poll is far away.
func TestALostNotificationConnectionTriggersAClaimAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(0)
		r := notified(t, g)
		for range 5 {
			g.add(1) // its notification is lost
			start := time.Now()
			g.silent <- struct{}{}
			(<-r.Messages()).Ack()
			assert.LessOrEqual(t, time.Since(start), fallbackInterval)
			g.hints <- 0
			pass(time.Minute)
		}
	})
}

// unannounced adds a message that no notification tells, and returns how late it comes.
func unannounced(g *fakeGroup, r *running) time.Duration {
	g.add(1)
	start := time.Now()
	(<-r.Messages()).Ack()
	return time.Since(start)
}

// TestFalseNotificationsDelayMessagesByAtMostOnePoll: a notification that another consumer has claimed may be false.
func TestFalseNotificationsDelayMessagesByAtMostOnePoll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(0)
		r := notified(t, g)
		for range 20 {
			pass(10 * time.Minute)
			g.view(func() { g.next = 10 * time.Second }) // it is in Redis
			g.hints <- 10 * time.Second
			pass(9 * time.Second)
			g.view(func() { g.next = time.Second })
			g.claimHints <- -1
			pass(time.Second)
			g.view(func() { g.next = -1 })
			assert.LessOrEqual(t, unannounced(g, r), testPoll)
		}
	})
}

// TestConsumersThatNotifyEachOtherPollRarely: after each message, one more claim is enough.
func TestConsumersThatNotifyEachOtherPollRarely(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(0)
		notified(t, g)
		before := g.claims()
		const hours = 5
		for range hours {
			g.hints <- 0
			pass(time.Millisecond)
			g.claimHints <- 30 * time.Second // the lease of the consumer that has it
			for range 119 {
				pass(30 * time.Second)
				g.claimHints <- -1
			}
			pass(30 * time.Second)
		}
		assert.LessOrEqual(t, g.claims()-before, hours*(int(time.Hour/(26*time.Second))+4))
	})
}
