package delivery

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAPartitionThatHangsHoldsUpNoOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		hanging, healthy := newFakeGroup(10), newFakeGroup(50)
		hanging.latency = testLease / 2
		r := runTopic(&fakeTopic{groups: []*fakeGroup{hanging, healthy}})
		start := time.Now()
		for range 50 {
			(<-r.Messages()).Ack()
		}
		assert.Less(t, time.Since(start), time.Second, "the partition that hangs had reserved the only message")
		hanging.view(func() { hanging.latency = 0 })
		for range 10 {
			(<-r.Messages()).Ack()
		}
		pass(testLease)
		r.stop()
		require.NoError(t, <-r.ended)
		assert.Len(t, hanging.acked, 10)
		assert.Len(t, healthy.acked, 50)
	})
}

func TestAPartitionThatFailsHoldsUpNoOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		failing, healthy := newFakeGroup(10), newFakeGroup(50)
		failing.setHook(func(string) error { return errAway })
		r := runTopic(&fakeTopic{groups: []*fakeGroup{failing, healthy}})
		start := time.Now()
		for range 50 {
			(<-r.Messages()).Ack()
		}
		assert.Less(t, time.Since(start), time.Second)
		failing.setHook(nil)
		for range 10 {
			(<-r.Messages()).Ack()
		}
		pass(time.Second)
		r.stop()
		require.NoError(t, <-r.ended)
		assert.Len(t, failing.acked, 10)
	})
}

func TestPartitionsTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		topic := &fakeTopic{}
		for range 3 {
			g := newFakeGroup(100)
			g.latency = time.Millisecond
			topic.add(g)
		}
		r := runTopic(topic)
		for range 30 {
			msg := <-r.Messages()
			pass(200 * time.Millisecond)
			msg.Ack()
		}
		pass(5 * time.Millisecond)
		held := 0
		for i, g := range topic.groups {
			g.view(func() {
				assert.InDelta(t, 10, len(g.acked), 1, "partition %d", i)
				held += 100 - len(g.ready) - len(g.acked) - len(g.released)
			})
		}
		assert.LessOrEqual(t, held, 1, "messages held by a slow handler")
		r.stop()
		require.NoError(t, <-r.ended)
	})
}

func TestNewPartitionsAreNoticed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		topic := &fakeTopic{groups: []*fakeGroup{newFakeGroup(0)}}
		r := runTopic(topic)
		pass(time.Second)
		added := newFakeGroup(3)
		topic.add(added)
		start := time.Now()
		for range 3 {
			(<-r.Messages()).Ack()
		}
		assert.LessOrEqual(t, time.Since(start), testPoll)
		added.hints <- 0
		pass(time.Second)
		r.stop()
		require.NoError(t, <-r.ended)
		assert.Len(t, added.acked, 3)
	})
}

func TestANotificationOpensNewPartitionsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		first := newFakeGroup(0)
		topic := &fakeTopic{groups: []*fakeGroup{first}}
		r := runTopic(topic)
		pass(time.Second)
		topic.add(newFakeGroup(1))
		start := time.Now()
		first.grown <- struct{}{}
		(<-r.Messages()).Ack()
		assert.Zero(t, time.Since(start))
		r.stop()
		require.NoError(t, <-r.ended)
	})
}

func TestAClaimOpensNewPartitionsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		first := newFakeGroup(0)
		first.partitions = 1
		topic := &fakeTopic{groups: []*fakeGroup{first}}
		r := runTopic(topic)
		pass(time.Second)
		topic.add(newFakeGroup(1))
		first.view(func() { first.partitions = 2 })
		first.hints <- 0
		start := time.Now()
		(<-r.Messages()).Ack()
		assert.Zero(t, time.Since(start))
		r.stop()
		require.NoError(t, <-r.ended)
	})
}

// TestALookThatFailsIsRepeatedSoon, although claims have shown meanwhile what it was for.
func TestALookThatFailsIsRepeatedSoon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		first := newFakeGroup(0)
		first.partitions = 1
		topic := &fakeTopic{groups: []*fakeGroup{first}}
		r := runTopic(topic)
		pass(time.Second)
		topic.add(newFakeGroup(1))
		topic.mu.Lock()
		topic.failing = 1
		topic.mu.Unlock()
		first.view(func() { first.partitions = 2 })
		first.hints <- 0
		start := time.Now()
		pass(time.Second)
		first.hints <- 0 // a claim that shows nothing new
		(<-r.Messages()).Ack()
		assert.LessOrEqual(t, time.Since(start), 2*testPoll)
		r.stop()
		require.NoError(t, <-r.ended)
	})
}

// TestAnIdleSubscriptionOnlyClaims as long as its claims show that the topic has not changed: it
// looks at the topic every ten minutes, and with each poll when groups may end.
func TestAnIdleSubscriptionOnlyClaims(t *testing.T) {
	for ending, limit := range map[bool]int{false: 6, true: 720} {
		bubble(t, func(t *testing.T) {
			group := newFakeGroup(0)
			group.partitions, group.ending = 1, ending
			topic := &fakeTopic{groups: []*fakeGroup{group}}
			r := runTopic(topic)
			pass(time.Hour)
			topic.mu.Lock()
			assert.InDelta(t, limit, topic.looks, 3, "groups that may end: %t", ending)
			topic.mu.Unlock()
			r.stop()
			require.NoError(t, <-r.ended)
		})
	}
}
