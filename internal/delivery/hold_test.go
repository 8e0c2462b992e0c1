package delivery

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// held is how many messages a subscription has claimed and not handed out or given back.
func (g *fakeGroup) held(total, handedOut int) (held int) {
	g.view(func() { held = total - len(g.ready) - handedOut - len(g.released) })
	return held
}

// learn makes a subscription believe that its handler is fast.
func learn(r *running, messages int) {
	for range messages {
		(<-r.Messages()).Ack()
	}
}

func TestABusyConsumerClaimsNothingOfATrickle(t *testing.T) {
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

func TestBlockedWorkersKeepNothingAndClaimNothing(t *testing.T) {
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
				assert.Equal(t, claims, g.claims(), "what was given back is for others")
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
		for handled := range 20 { // each begins when no message is on offer
			start := time.Now()
			msg := <-r.Messages()
			assert.LessOrEqual(t, time.Since(start), 10*time.Millisecond, "who comes back gets the next at once")
			pass(maxHold + 20*time.Millisecond)
			require.Zero(t, g.held(1000, handled+1))
			claims := g.claims()
			pass(10 * time.Second)
			assert.InDelta(t, 40, g.claims()-claims, 5, "it looks for a reader four times in a second")
			require.LessOrEqual(t, g.held(1000, handled+1), 1, "one to see whether there is a reader")
			for g.held(1000, handled+1) > 0 {
				pass(10 * time.Millisecond)
			}
			msg.Ack()
		}
		r.stop()
		require.NoError(t, <-r.ended)
	})
}

func TestWithNobodyReadingMessagesAreHeldOneAtATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(500)
		r := run(g, func(c *Config) { c.MaxInFlight = 20 })
		pass(time.Minute)
		assert.LessOrEqual(t, g.claims(), 5*60)
		require.LessOrEqual(t, g.held(500, 0), 1)
		start := time.Now()
		learn(r, 10)
		assert.LessOrEqual(t, time.Since(start), 2*unreadPause, "a reader that comes is noticed")
		r.stop()
		require.NoError(t, <-r.ended)
	})
}

func TestWhatAClaimGetsAfterAReturnIsGivenBackToo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(500)
		g.latency = time.Millisecond
		r := run(g)
		learn(r, 500)
		pass(time.Second)
		g.add(2) // the first is handed out, the second is held
		g.hints <- 0
		slow := <-r.Messages()
		pass(5 * time.Millisecond)
		require.Equal(t, 1, g.held(502, 501))
		g.setHook(func(call string) error {
			if call == "claim" {
				pass(2 * maxHold)
			}
			return nil
		})
		g.add(1)
		g.hints <- 0
		pass(maxHold) // the second is given back, while a claim is under way
		g.view(func() { require.Len(t, g.released, 1) })
		pass(2 * maxHold)
		g.view(func() {
			assert.Equal(t, []string{"0501", "0502"}, list(g.released, func(r queue.Release) string { return r.ID }))
		})
		slow.Ack()
		r.stop()
		require.NoError(t, <-r.ended)
	})
}

func TestWhatIsForAFreeWorkerIsClaimedForOneOnly(t *testing.T) {
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
			assert.LessOrEqual(t, g.claims(), claims+1, "a look ahead, and then no more")
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
		most := 0
		for range 10 {
			most = max(most, g.held(2000, 1501))
			pass(10 * time.Millisecond)
		}
		assert.LessOrEqual(t, most, 4+1, "messages of half a MiB")
		slow.Ack()
		r.stop()
		require.NoError(t, <-r.ended)
	})
}

func TestADeliveryCountsOnceItIsHandedOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(2)
		r := run(g, func(c *Config) { c.MaxInFlight = 2; c.Lease = maxHold })
		msg := <-r.Messages()
		pass(maxHold * 2 / 5)
		g.view(func() {
			assert.ElementsMatch(t, []queue.Held{
				{Delivery: queue.Delivery{ID: msg.UUID, Token: "1"}, HandedOut: true},
				{Delivery: queue.Delivery{ID: otherOf(msg.UUID), Token: "1"}},
			}, g.heldLast)
		})
		msg.Ack()
		r.stop()
		require.NoError(t, <-r.ended)
	})
}

func otherOf(id string) string {
	if id == "0000" {
		return "0001"
	}
	return "0000"
}

func TestWhatOthersSayPutsOffNoPoll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(0)
		r := run(g)
		start := time.Now()
		go func() {
			for time.Since(start) < 3*testPoll { // another consumer, or a program that is none
				pass(100 * time.Millisecond)
				g.looks <- -1
			}
		}()
		pass(time.Second)
		g.add(1) // of which nobody tells
		added := time.Now()
		(<-r.Messages()).Ack()
		assert.LessOrEqual(t, time.Since(added), testPoll)
		pass(4 * testPoll)
		r.stop()
		require.NoError(t, <-r.ended)
	})
}

func TestEndingGivesBackFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1000)
		r := run(g)
		learn(r, 500)
		slow := <-r.Messages()
		r.stop()
		pass(time.Millisecond)
		assert.Zero(t, g.held(1000, 501))
		slow.Ack()
		require.NoError(t, <-r.ended)
		assert.Len(t, g.acked, 501)
	})
}

func TestADecoderThatNeverEndsDoesNotHoldUpTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		r := run(g, func(c *Config) {
			decode := c.Decode
			c.Decode = func(ctx context.Context, m queue.Claimed) (*message.Message, error) {
				pass(time.Hour)
				return decode(ctx, m)
			}
		})
		pass(time.Second)
		start := time.Now()
		r.stop()
		require.Error(t, <-r.ended)
		assert.LessOrEqual(t, time.Since(start), testCloseTimeout+closeGrace)
		pass(2 * time.Hour)
	})
}
