package delivery

import (
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

func TestMessagesAreHeldOneAtATimeWithoutAReader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(500)
		r := run(t, g, func(c *Config) { c.MaxInFlight = 20 })
		pass(time.Minute)
		assert.LessOrEqual(t, g.claims(), 5*60)
		require.LessOrEqual(t, g.held(500, 0), 1)
		start := time.Now()
		learn(r, 10)
		assert.LessOrEqual(t, time.Since(start), 2*unreadPause, "a new reader is noticed")
	})
}

func TestAMessageThatNeedsAFreeWorkerIsNotClaimedAhead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(500)
		r := run(t, g)
		learn(r, 500)
		g.view(func() { g.needsWorker = true })
		g.add(3)
		g.hints <- 0
		for range 3 {
			msg := <-r.Messages()
			claims := g.claims()
			pass(time.Second)
			assert.LessOrEqual(t, g.claims(), claims+1, "it looks ahead once")
			msg.Ack()
		}
		r.end(t)
		assert.Empty(t, g.released)
	})
}

func TestHeldBytesAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(2000)
		g.latency = time.Millisecond
		r := run(t, g, func(c *Config) { c.MaxBytes = 2 << 20 })
		learn(r, 1000)
		g.view(func() { g.body = make([]byte, 512<<10) })
		learn(r, 500)
		slow := <-r.Messages()
		limit := 0
		for range 10 {
			limit = max(limit, g.held(2000, 1501))
			pass(10 * time.Millisecond)
		}
		assert.Contains(t, []int{4, 4 + 1}, limit, "messages of half a MiB")
		slow.Ack()
	})
}

// TestSmallClaimsKeepAllHandlersBusy: with ordering keys, fewer messages may be buffered than there are handlers.
func TestSmallClaimsKeepAllHandlersBusy(t *testing.T) {
	const handlers = 4*maxOrdered + 200
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(handlers + 1)
		ids := script.NewIDs()
		for i := range g.ready {
			g.ready[i].ID = ids.Next(time.Now(), script.Traits{OrderingKey: fmt.Sprint(i)})
		}
		r := run(t, g, func(c *Config) { c.MaxInFlight = handlers })
		var list []*message.Message
		for range handlers {
			select {
			case msg := <-r.Messages():
				list = append(list, msg)
			case <-time.After(testPoll):
			}
		}
		assert.Equal(t, handlers, len(list))
		for _, msg := range list {
			msg.Ack()
		}
	})
}
