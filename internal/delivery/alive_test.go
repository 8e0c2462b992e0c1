package delivery

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// present makes a consumer one that says something about itself.
func present(c *Config) { c.ConsumerInfo = func([]Extended) string { return "{}" } }

// TestABusyConsumerSendsHeartbeatsToIdlePartitions: it claims nothing in a partition of which it holds no message, because it
// has no free worker.
func TestABusyConsumerSendsHeartbeatsToIdlePartitions(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"default":                func(*Config) {},
		"rare polls":             func(c *Config) { c.PollInterval = time.Minute },
		"polls every half lease": func(c *Config) { c.PollInterval = testLease / 2 },
		"short leases":           func(c *Config) { c.Lease = time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				first, busy, third := newFakeGroup(0), newFakeGroup(1), newFakeGroup(0)
				r := runTopic(t, &fakeTopic{groups: []*fakeGroup{first, busy, third}}, present, change)
				msg := <-r.Messages()
				alive := r.config.alive()
				pass(20 * alive)
				assert.Less(t, longestSilence(first), alive)
				assert.Less(t, longestSilence(third), alive, "another subscriber may have made the group expire")
				msg.Ack()
			})
		})
	}
}

// TestABusyConsumerAnswersAnExpiryNoticeInTime even if the first answer fails, because its group may be about to expire. It
// answers several notices once. A notice that a claim follows needs no answer.
func TestABusyConsumerAnswersAnExpiryNoticeInTime(t *testing.T) {
	const notice = 9 * time.Second // how long before its end a group is called
	for _, lease := range []time.Duration{testLease, 10 * time.Minute} {
		bubble(t, func(t *testing.T) {
			quiet, busy := newFakeGroup(0), newFakeGroup(0)
			r := runTopic(t, &fakeTopic{groups: []*fakeGroup{quiet, busy}}, present, func(c *Config) { c.Lease = lease })
			answers := func() (n int) { quiet.view(func() { n = len(quiet.extended) }); return n }
			quiet.called <- struct{}{}
			pass(notice)
			assert.Zero(t, answers(), "its claim has answered")
			busy.add(1)
			busy.hints <- 0
			msg := <-r.Messages()
			for range 3 {
				quiet.called <- struct{}{}
			}
			pass(notice)
			assert.Equal(t, 1, answers())
			var once sync.Once
			quiet.setHook(func(call string) (err error) {
				if call == "extend" {
					once.Do(func() { err = errDown })
				}
				return err
			})
			quiet.called <- struct{}{}
			pass(notice)
			assert.Equal(t, 2, answers(), "one has failed")
			pass(lease / 4)
			assert.Equal(t, 2, answers())
			msg.Ack()
		})
	}
}

// TestAConsumerThatHasLeftSendsNoHeartbeats even if its group had a notice just before, while another partition settles.
func TestAConsumerThatHasLeftSendsNoHeartbeats(t *testing.T) {
	bubble(t, func(t *testing.T) {
		quiet, busy := newFakeGroup(0), newFakeGroup(1)
		busy.setHook(failing("ack", errDown))
		r := runTopic(t, &fakeTopic{groups: []*fakeGroup{quiet, busy}}, present)
		msg := <-r.Messages()
		pass(time.Second)
		var calls []string
		quiet.setHook(func(call string) error {
			quiet.view(func() { calls = append(calls, call) })
			return nil
		})
		quiet.called <- struct{}{}
		pass(time.Millisecond)
		r.stop()
		msg.Ack()
		require.ErrorIs(t, <-r.ended, errUnsettled)
		quiet.view(func() { assert.Equal(t, []string{"leave"}, calls) })
	})
}

// longestSilence is the longest time in which a consumer has not said that it is alive.
func longestSilence(g *fakeGroup) (longest time.Duration) {
	g.view(func() {
		signs := append(slices.Clone(g.claimed), g.extended...)
		slices.SortFunc(signs, time.Time.Compare)
		signs = append(signs, time.Now())
		for i := range len(signs) - 1 {
			longest = max(longest, signs[i+1].Sub(signs[i]))
		}
	})
	return longest
}

func TestClaimsOfAnIdleConsumerReplaceHeartbeats(t *testing.T) {
	for _, poll := range []time.Duration{100 * time.Millisecond, testPoll, testLease / 2, testLease, 10 * testLease} {
		bubble(t, func(t *testing.T) {
			g := newFakeGroup(0)
			r := run(t, g, present, func(c *Config) { c.PollInterval = poll })
			pass(20 * max(poll, testLease))
			r.end(t)
			assert.Empty(t, g.extended, "with a poll interval of %s", poll)
		})
	}
}

func TestASubscriptionEndsExpiredGroupsAndReportsThem(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := &witness{}
		topic := &fakeTopic{groups: []*fakeGroup{newFakeGroup(0)}, ended: []queue.Ended{{Group: "old", Freed: 3}}, endFails: errDown}
		r := runTopic(t, topic, observed(w))
		pass(testPoll + time.Second)
		topic.mu.Lock()
		topic.ended, topic.endFails = nil, nil
		topic.mu.Unlock()
		pass(testPoll)
		r.end(t)
		ended := eventsOf[observe.GroupExpired](w)
		require.NotEmpty(t, ended)
		assert.Equal(t, observe.GroupExpired{Place: observe.Place{Topic: "t", Group: "old", Partition: -1}, Freed: 3}, ended[0])
		place := observe.Place{Topic: "t", Group: "g", Partition: -1}
		failed := eventsOf[observe.Failed](w)
		require.NotEmpty(t, failed)
		assert.Equal(t, observe.Failed{Place: place, Activity: observe.ExpiringGroups, Err: errDown}, failed[0])
		assert.Equal(t, []observe.OutageBegan{{Place: place, Activity: observe.ExpiringGroups, Err: errDown}}, eventsOf[observe.OutageBegan](w))
		require.Len(t, eventsOf[observe.OutageEnded](w), 1)
		assert.Equal(t, observe.ExpiringGroups, eventsOf[observe.OutageEnded](w)[0].Activity)
	})
}

// TestEndingExpiredGroupsIsRetriedSoon although claims show that no group may end.
func TestEndingExpiredGroupsIsRetriedSoon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, g := &witness{}, newFakeGroup(0)
		g.partitions = 1
		topic := &fakeTopic{groups: []*fakeGroup{g}, endFails: errDown}
		r := runTopic(t, topic, observed(w))
		g.grown <- struct{}{}
		pass(time.Second)
		require.Len(t, eventsOf[observe.OutageBegan](w), 1)
		topic.mu.Lock()
		topic.endFails = nil
		topic.mu.Unlock()
		pass(2 * testPoll)
		assert.Len(t, eventsOf[observe.OutageEnded](w), 1)
		pass(10 * testPoll)
		r.end(t)
		assert.Equal(t, 2, topic.searches)
	})
}

func TestEachRecreationOfAGroupIsReportedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, g := &witness{}, newFakeGroup(0)
		r := run(t, g, observed(w))
		recreate := func() {
			g.view(func() { g.recreated = true })
			g.add(1)
			g.hints <- 0
			(<-r.Messages()).Ack()
		}
		recreate()
		recreate() // another partition would be as soon
		assert.Equal(t, []observe.GroupRecreated{{Place: observe.Place{Topic: "t", Group: "g", Partition: -1}}}, eventsOf[observe.GroupRecreated](w))
		pass(recreatedWithin)
		recreate()
		assert.Len(t, eventsOf[observe.GroupRecreated](w), 2)
		assert.Empty(t, eventsOf[observe.Failed](w))
	})
}
