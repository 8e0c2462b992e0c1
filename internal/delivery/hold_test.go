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

func TestABusyConsumerLeavesATrickleToOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(500)
		g.latency = time.Millisecond
		r := run(g)
		learn(r, 500)
		g.add(1)
		g.hints <- 0
		slow := <-r.Messages()
		total := 501
		for range 100 {
			g.add(1)
			total++
			g.hints <- 0
			pass(50 * time.Millisecond)
			require.LessOrEqual(t, g.held(total, 501), 2, "messages that an idle consumer could handle")
		}
		g.view(func() { assert.LessOrEqual(t, len(g.released), 2) })
		slow.Ack()
		r.stop()
		require.NoError(t, <-r.ended)
	})
}

func TestBlockedWorkersHoldNothingAndClaimNothing(t *testing.T) {
	for _, workers := range []int{1, 2, 5, 10, 20, 50, 100} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newFakeGroup(3000)
				g.latency = time.Millisecond
				r := run(g, func(c *Config) { c.MaxInFlight = workers })
				learn(r, 1000)
				var blocked []*message.Message
				for range workers {
					blocked = append(blocked, <-r.Messages())
				}
				pass(maxHold + 20*time.Millisecond)
				require.Zero(t, g.held(3000, 1000+workers))
				claims := g.claims()
				pass(10 * time.Second)
				assert.Equal(t, claims, g.claims(), "messages that were given back are for others")
				blocked[0].Ack()
				(<-r.Messages()).Ack()
				for _, msg := range blocked[1:] {
					msg.Ack()
				}
				r.stop()
				require.NoError(t, <-r.ended)
			})
		})
	}
}

func TestAReaderThatHandlesOneAtATimeHoldsUpNoOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1000)
		g.latency = time.Millisecond
		r := run(g, func(c *Config) { c.MaxInFlight = 10 })
		for handled := range 20 { // the handler starts while no message is on offer
			start := time.Now()
			msg := <-r.Messages()
			assert.LessOrEqual(t, time.Since(start), 10*time.Millisecond, "the reader gets the next message at once")
			pass(maxHold + 20*time.Millisecond)
			require.Zero(t, g.held(1000, handled+1))
			claims := g.claims()
			pass(10 * time.Second)
			assert.InDelta(t, 40, g.claims()-claims, 5, "it looks for a reader four times a second")
			require.LessOrEqual(t, g.held(1000, handled+1), 1, "one message, to look for a reader")
			for g.held(1000, handled+1) > 0 {
				pass(10 * time.Millisecond)
			}
			msg.Ack()
		}
		r.stop()
		require.NoError(t, <-r.ended)
	})
}

func TestWithoutAReaderMessagesAreHeldOneAtATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(500)
		r := run(g, func(c *Config) { c.MaxInFlight = 20 })
		pass(time.Minute)
		assert.LessOrEqual(t, g.claims(), 5*60)
		require.LessOrEqual(t, g.held(500, 0), 1)
		start := time.Now()
		learn(r, 10)
		assert.LessOrEqual(t, time.Since(start), 2*unreadPause, "a new reader is noticed")
		r.stop()
		require.NoError(t, <-r.ended)
	})
}

func TestAMessageForAFreeWorkerIsClaimedOnlyForOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(500)
		r := run(g)
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
		r.stop()
		require.NoError(t, <-r.ended)
		assert.Empty(t, g.released)
	})
}

func TestHeldBytesAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(2000)
		g.latency = time.Millisecond
		r := run(g, func(c *Config) { c.MaxBytes = 2 << 20 })
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
		r.stop()
		require.NoError(t, <-r.ended)
	})
}

// TestAllHandlersAreBusyAlthoughClaimsAreSmall: with ordering keys, fewer messages are held ahead than there may be handlers.
func TestAllHandlersAreBusyAlthoughClaimsAreSmall(t *testing.T) {
	const handlers = 4*maxOrdered + 200
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(handlers + 1)
		ids := script.NewIDs()
		for i := range g.ready {
			g.ready[i].ID = ids.Next(time.Now(), script.Traits{OrderingKey: fmt.Sprint(i)})
		}
		r := run(g, func(c *Config) { c.MaxInFlight = handlers })
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
		r.stop()
		require.NoError(t, <-r.ended)
	})
}
