package delivery

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestPartitionsTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		topic := &fakeTopic{}
		for range 3 {
			g := newFakeGroup(100)
			g.latency = time.Millisecond
			topic.add(g)
		}
		r := runTopic(t, topic)
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
	})
}

func TestANotificationOpensNewPartitionsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		first := newFakeGroup(0)
		topic := &fakeTopic{groups: []*fakeGroup{first}}
		r := runTopic(t, topic)
		pass(time.Second)
		topic.add(newFakeGroup(1))
		start := time.Now()
		first.grown <- struct{}{}
		(<-r.Messages()).Ack()
		assert.Zero(t, time.Since(start))
	})
}

func TestAClaimOpensNewPartitionsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		first := newFakeGroup(0)
		first.partitions = 1
		topic := &fakeTopic{groups: []*fakeGroup{first}}
		r := runTopic(t, topic)
		pass(time.Second)
		topic.add(newFakeGroup(1))
		first.view(func() { first.partitions = 2 })
		first.hints <- 0
		start := time.Now()
		(<-r.Messages()).Ack()
		assert.Zero(t, time.Since(start))
	})
}

// TestAFailedPartitionQueryIsRetriedSoon although later claims show nothing new.
func TestAFailedPartitionQueryIsRetriedSoon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		first := newFakeGroup(0)
		first.partitions = 1
		topic := &fakeTopic{groups: []*fakeGroup{first}}
		r := runTopic(t, topic)
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
	})
}

// TestAnIdleSubscriptionRarelyReadsTheTopic: as long as its claims show that the topic has not changed, it reads the topic
// every ten minutes, or with each poll while groups may expire.
func TestAnIdleSubscriptionRarelyReadsTheTopic(t *testing.T) {
	for ending, limit := range map[bool]int{false: 6, true: 720} {
		bubble(t, func(t *testing.T) {
			group := newFakeGroup(0)
			group.partitions, group.ending = 1, ending
			topic := &fakeTopic{groups: []*fakeGroup{group}}
			runTopic(t, topic)
			pass(time.Hour)
			topic.mu.Lock()
			assert.InDelta(t, limit, topic.queries, 3, "groups that may end: %t", ending)
			topic.mu.Unlock()
		})
	}
}
