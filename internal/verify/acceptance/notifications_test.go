package acceptance

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

func TestASubscriptionSurvivesTheLossOfItsConnections(t *testing.T) {
	t.Parallel() // it mostly waits
	server := redistest.New(t)
	s := fixture.NewOn(t, server)
	messages := s.Subscribe(func(c *subConfig) { c.PollInterval = time.Hour })
	for i := range 5 {
		redistest.Command(t, s.Client, "CLIENT", "KILL", "TYPE", "pubsub")
		redistest.Command(t, s.Client, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		s.Publish(fmt.Sprint(i))
		s.Expect(messages, fmt.Sprint(i))
	}
}

func TestIdleConsumersDoNotAllClaimTheSameMessage(t *testing.T) {
	s := fixture.New(t)
	var claims atomic.Int64
	counted := func(c observe.Called) {
		if c.Script == "claim" {
			claims.Add(1)
		}
	}
	const consumers, count, rounds = 30, 20, 20
	var seen atomic.Int64
	for range consumers {
		messages := s.Subscribe(func(c *subConfig) { c.PollInterval, c.Observer.Called = time.Hour, counted })
		go func() { // ends with the subscription
			for msg := range messages {
				seen.Add(1)
				msg.Ack()
			}
		}()
	}
	p := s.Publisher()
	publish := func() {
		before := seen.Load()
		require.NoError(t, p.Publish(s.Topic, fixture.Delayed("", 100*time.Millisecond)))
		require.Eventually(t, func() bool { return seen.Load() == before+1 }, fixture.Soon, time.Millisecond)
		<-time.After(50 * time.Millisecond)
	}
	publish() // from now on, they know about each other
	// Usually 20 to 60 claims; on a busy machine, some consumers hear too late. Without the notices, all of them claim each time.
	best := int64(consumers * count)
	for round := 0; round < rounds && best > consumers*count/3; round++ {
		claims.Store(0)
		for range count {
			publish()
		}
		s.Settled()
		require.GreaterOrEqual(t, claims.Load(), int64(count))
		best = min(best, claims.Load())
		t.Logf("%d claims for %d messages", claims.Load(), count)
	}
	assert.LessOrEqual(t, best, int64(consumers*count/3), "with %d consumers", consumers)
}
