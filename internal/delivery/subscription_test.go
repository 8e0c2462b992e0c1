package delivery

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// bubble runs a test on a clock of its own (testing/synctest).
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

func pass(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // lets a bubble's clock run

func TestAnIdleSubscriptionOnlyPolls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(0)
		r := run(g)
		pass(time.Minute)
		r.stop()
		require.NoError(t, <-r.ended)
		assert.InDelta(t, 14, len(g.requests), 1, "one claim each poll interval, or a little sooner")
		assert.Empty(t, g.extended, "with nothing held there is nothing to extend")
	})
}

func TestASubscriptionSleepsUntilTheNextMessageIsDue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(0)
		g.next = 1234 * time.Millisecond
		start := time.Now()
		r := run(g)
		pass(2 * time.Second)
		r.stop()
		require.NoError(t, <-r.ended)
		require.Len(t, g.claimed, 2)
		assert.Equal(t, g.next, g.claimed[1].Sub(start))
	})
}

func TestAHintWakesASubscription(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(0)
		start := time.Now()
		r := run(g)
		pass(time.Second)
		g.hints <- 700 * time.Millisecond
		pass(time.Second)
		r.stop()
		require.NoError(t, <-r.ended)
		require.Len(t, g.claimed, 2)
		assert.Equal(t, 1700*time.Millisecond, g.claimed[1].Sub(start))
	})
}

func TestAHintDuringAClaimIsNotForgotten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(0)
		g.latency = 100 * time.Millisecond
		r := run(g)
		pass(50 * time.Millisecond)
		g.hints <- 0
		pass(time.Second)
		r.stop()
		require.NoError(t, <-r.ended)
		assert.Len(t, g.claimed, 2)
	})
}

func TestAFailingClaimIsRepeatedUnderItsNumberAtMostFiveTimesASecond(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		g.setHook(func(string) error { return errAway })
		r := run(g)
		pass(20 * time.Second)
		g.setHook(nil)
		(<-r.Messages()).Ack()
		pass(time.Second)
		r.stop()
		require.NoError(t, <-r.ended)
		for i, request := range g.requests[:10] {
			assert.EqualValues(t, 1, request.Number, "request %d", i)
		}
		for i := range g.claimed[:10] {
			if i > 0 {
				assert.GreaterOrEqual(t, g.claimed[i].Sub(g.claimed[i-1]), 200*time.Millisecond)
				assert.LessOrEqual(t, g.claimed[i].Sub(g.claimed[i-1]), 3*time.Second, "it is noticed when Redis is back")
			}
		}
		assert.Equal(t, []string{"0000"}, g.acked)
	})
}

func TestFastHandlersGetLargeBatches(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(5000)
		g.latency = time.Millisecond
		r := run(g)
		for range 5000 {
			msg := <-r.Messages()
			pass(10 * time.Microsecond)
			msg.Ack()
		}
		pass(time.Second)
		r.stop()
		require.NoError(t, <-r.ended)
		assert.Len(t, g.acked, 5000)
		assert.Less(t, len(g.requests), 60)
		for _, request := range g.requests {
			assert.LessOrEqual(t, request.Limit, maxClaim+1)
		}
		assert.Less(t, len(g.rounds), 500, "acks go out together")
		for i := range g.acked {
			require.Equal(t, fmt.Sprintf("%04d", i), g.acked[i])
		}
	})
}

func TestSlowHandlersGetOneMessageAtATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(20)
		r := run(g, func(c *Config) { c.MaxInFlight = 2 })
		for range 10 {
			first, second := <-r.Messages(), <-r.Messages()
			pass(200 * time.Millisecond)
			first.Ack()
			second.Ack()
		}
		pass(time.Second)
		r.stop()
		require.NoError(t, <-r.ended)
		assert.Empty(t, g.released)
		for _, request := range g.requests {
			assert.LessOrEqual(t, request.Limit, 2)
		}
	})
}

func TestABufferBehindASlowMessageIsGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(2000)
		g.latency = time.Millisecond
		r := run(g)
		for range 500 {
			(<-r.Messages()).Ack()
		}
		slow := <-r.Messages()
		pass(maxHold + 20*time.Millisecond)
		var held int
		g.view(func() { held = 2000 - len(g.ready) - 501 - len(g.released) })
		assert.Zero(t, held, "messages held back behind a slow one")
		assert.NotEmpty(t, g.released)
		slow.Ack()
		r.stop()
		require.NoError(t, <-r.ended)
	})
}

func TestLeasesAreExtendedEveryThirdOfTheirDuration(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		start := time.Now()
		r := run(g)
		msg := <-r.Messages()
		pass(5*testLease + time.Second)
		require.NoError(t, msg.Context().Err())
		msg.Ack()
		r.stop()
		require.NoError(t, <-r.ended)
		for i, at := range g.extended {
			assert.Equal(t, time.Duration(i+1)*testLease/3, at.Sub(start))
		}
		assert.Len(t, g.extended, 15)
	})
}

func TestAMessageIsGivenUpBeforeItsLeaseEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		g.setHook(func(call string) error {
			if call == "extend" {
				return errAway
			}
			return nil
		})
		start := time.Now()
		r := run(g)
		msg := <-r.Messages()
		<-msg.Context().Done()
		require.ErrorIs(t, context.Cause(msg.Context()), ErrLeaseLost)
		assert.Equal(t, testLease-time.Second, time.Since(start))
		r.stop()
		msg.Ack()
		require.NoError(t, <-r.ended)
		assert.Equal(t, []string{"0000"}, g.acked, "a late ack may still count")
	})
}

func TestAHungExtendDoesNotKeepAMessageFromBeingGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		g.setHook(func(call string) error {
			if call == "extend" {
				pass(time.Hour)
			}
			return nil
		})
		start := time.Now()
		r := run(g)
		msg := <-r.Messages()
		<-msg.Context().Done()
		assert.Equal(t, testLease-time.Second, time.Since(start))
		msg.Nack()
		r.stop()
		require.NoError(t, <-r.ended)
		pass(time.Hour)
	})
}

func TestAMessageThatIsNoLongerCurrentIsGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		r := run(g)
		msg := <-r.Messages()
		g.view(func() { g.stale["0000"] = true })
		<-msg.Context().Done()
		require.ErrorIs(t, context.Cause(msg.Context()), ErrLeaseLost)
		msg.Nack()
		r.stop()
		require.NoError(t, <-r.ended)
	})
}

func TestALostMessageIsNotHandedOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		g.setHook(func(call string) error {
			if call == "extend" {
				return errAway
			}
			return nil
		})
		r := run(g)
		pass(2 * testLease) // nobody reads
		select {
		case msg := <-r.Messages():
			require.Fail(t, "handed out", msg.UUID)
		default:
		}
		r.stop()
		require.NoError(t, <-r.ended)
	})
}

func TestWhatFailsToSettleIsSentAgainAndHoldsUpNothingElse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(3)
		g.setHook(func(call string) error {
			if call == "ack" {
				return errAway
			}
			return nil
		})
		r := run(g)
		(<-r.Messages()).Ack()
		(<-r.Messages()).Nack()
		pass(5 * time.Second)
		g.view(func() {
			assert.Empty(t, g.acked)
			assert.Len(t, g.nacked, 1)
		})
		g.setHook(nil)
		pass(5 * time.Second)
		g.view(func() { assert.Equal(t, []string{"0000"}, g.acked) })
		r.stop()
		require.NoError(t, <-r.ended)
	})
}

func TestClaimsPauseWhileAcksPileUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(10_000)
		g.setHook(func(call string) error {
			if call == "ack" {
				return errAway
			}
			return nil
		})
		r := run(g)
		var handled atomic.Int64
		go func() {
			for msg := range r.Messages() {
				handled.Add(1)
				msg.Ack()
			}
		}()
		pass(20 * time.Second)
		assert.LessOrEqual(t, handled.Load(), int64(maxHeld+2*maxClaim))
		g.setHook(nil)
		pass(20 * time.Second)
		assert.EqualValues(t, 10_000, handled.Load())
		r.stop()
		require.NoError(t, <-r.ended)
		assert.Len(t, g.acked, 10_000)
	})
}

func TestAMessageThatCannotBeDecodedIsBuried(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(2)
		r := run(g, func(c *Config) {
			decode := c.Decode
			c.Decode = func(ctx context.Context, m queue.Claimed) (*message.Message, error) {
				if m.ID == "0000" {
					return nil, errors.New("garbage")
				}
				return decode(ctx, m)
			}
		})
		msg := <-r.Messages()
		assert.Equal(t, "0001", msg.UUID)
		msg.Ack()
		r.stop()
		require.NoError(t, <-r.ended)
		assert.Equal(t, []queue.Burial{{Delivery: queue.Delivery{ID: "0000", Token: "1"}, Reason: "cannot decode: garbage"}}, g.buried)
	})
}

func TestEndingGivesBackWhatAClaimUnderWayGets(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		g.latency = 300 * time.Millisecond
		r := run(g)
		pass(100 * time.Millisecond)
		r.stop()
		require.NoError(t, <-r.ended)
		require.Len(t, g.released, 1)
		_, open := <-r.Messages()
		assert.False(t, open)
	})
}

func TestEndingAsksAgainForAClaimWhoseReplyWasLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		failing, failed := make(chan struct{}), make(chan struct{})
		lost := false
		g.setHook(func(call string) error {
			if call != "claim" || lost {
				return nil
			}
			lost = true
			close(failing)
			<-failed
			return errAway
		})
		r := run(g)
		<-failing
		r.stop()
		close(failed)
		require.NoError(t, <-r.ended)
		require.Len(t, g.requests, 2)
		assert.Equal(t, g.requests[0].Number, g.requests[1].Number)
		assert.Len(t, g.released, 1)
	})
}

func TestEndingNeverTakesLongerThanCloseTimeoutAndTheGrace(t *testing.T) {
	for _, hung := range []string{"claim", "ack", "extend", ""} {
		t.Run("hung "+hung, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newFakeGroup(3)
				r := run(g)
				(<-r.Messages()).Ack()
				msg := <-r.Messages()
				g.setHook(func(call string) error {
					if call == hung {
						pass(time.Hour)
					}
					return nil
				})
				g.hints <- 0
				pass(testLease)
				start := time.Now()
				r.stop()
				pass(time.Second)
				msg.Ack()
				if err := <-r.ended; hung == "" {
					require.NoError(t, err)
				}
				assert.LessOrEqual(t, time.Since(start), testCloseTimeout+closeGrace)
				pass(2 * time.Hour)
			})
		})
	}
}

func TestAHandlerThatOutlastsCloseTimeoutLosesItsMessage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		r := run(g)
		msg := <-r.Messages()
		start := time.Now()
		r.stop()
		require.NoError(t, <-r.ended)
		assert.Equal(t, testCloseTimeout, time.Since(start))
		require.ErrorIs(t, context.Cause(msg.Context()), ErrCloseTimeout)
		assert.Equal(t, []queue.Nack{{Delivery: queue.Delivery{ID: "0000", Token: "1"}}}, g.nacked)
	})
}

func TestANackedMessageIsClaimedWhenItIsDue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		r := run(g) // whose nacks are due after a second; notifications are lost
		start := time.Now()
		(<-r.Messages()).Nack()
		pass(2 * time.Second)
		r.stop()
		require.NoError(t, <-r.ended)
		assert.Equal(t, time.Second, g.claimed[len(g.claimed)-1].Sub(start))
	})
}

func TestABufferIsGivenBackWhenHandlersBecomeSlow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(2000)
		g.latency = time.Millisecond
		r := run(g)
		for range 500 {
			(<-r.Messages()).Ack()
		}
		for range 3 { // each below maxHold, but not all that are buffered
			msg := <-r.Messages()
			pass(90 * time.Millisecond)
			msg.Ack()
		}
		pass(5 * time.Millisecond)
		var held int
		g.view(func() { held = 2000 - len(g.ready) - 503 - len(g.released) })
		assert.LessOrEqual(t, held, 1, "messages held back")
		r.stop()
		require.NoError(t, <-r.ended)
	})
}

func TestNothingIsClaimedBeforeWhatIsGivenBackHasArrived(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(2000)
		g.latency = time.Millisecond
		r := run(g)
		for range 500 {
			(<-r.Messages()).Ack()
		}
		slow := <-r.Messages()
		g.setHook(func(call string) error {
			if call == "release" {
				return errAway
			}
			return nil
		})
		pass(maxHold + 10*time.Millisecond)
		slow.Ack()
		var before int
		g.view(func() { before = len(g.requests) })
		pass(time.Second)
		g.view(func() { assert.Len(t, g.requests, before, "later messages would overtake those given back") })
		g.setHook(nil)
		pass(2 * maxBackoff)
		g.view(func() {
			assert.Greater(t, len(g.requests), before)
			assert.NotEmpty(t, g.released)
		})
		r.stop()
		require.NoError(t, <-r.ended)
	})
}

func TestASlowReplyShortensTheTrustInALease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(0)
		g.setHook(func(call string) error {
			if call == "extend" {
				return errAway
			}
			return nil
		})
		r := run(g)
		pass(testLease / 2)
		g.add(1)
		g.view(func() { g.latency = 20 * time.Second }) // longer than until guard looks
		g.hints <- 0
		sent := time.Now()
		msg := <-r.Messages()
		<-msg.Context().Done()
		require.ErrorIs(t, context.Cause(msg.Context()), ErrLeaseLost)
		assert.LessOrEqual(t, time.Since(sent), testLease-time.Second)
		g.view(func() { g.latency = 0 })
		msg.Ack()
		r.stop()
		require.NoError(t, <-r.ended)
		pass(time.Minute) // for the calls under way
	})
}

func TestAPartitionThatHangsHoldsUpNoOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		hanging, healthy := newFakeGroup(10), newFakeGroup(50)
		hanging.latency = testLease / 2
		r := runTopic(&fakeTopic{groups: []*fakeGroup{hanging, healthy}})
		start := time.Now()
		for range 50 {
			(<-r.Messages()).Ack()
		}
		assert.Less(t, time.Since(start), time.Second, "the only place was promised to the one that hangs")
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

func TestAConsumerLetsAnotherGoFirstThatFindsMoreMessages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(0)
		g.next = 100 * time.Millisecond
		r := run(g)
		for range 20 { // another consumer claims each message before it, and tells
			pass(100*time.Millisecond + 10*time.Microsecond)
			g.looks <- 100 * time.Millisecond
		}
		g.view(func() { assert.LessOrEqual(t, len(g.claimed), 6, "claims for 20 messages that another had") })

		pass(time.Minute) // it is alone again
		start := time.Now()
		g.hints <- 0
		g.add(1)
		(<-r.Messages()).Ack()
		assert.LessOrEqual(t, time.Since(start), minYield+maxYield)
		pass(time.Second)
		for range 10 {
			start = time.Now()
			g.add(1)
			g.hints <- 0
			(<-r.Messages()).Ack()
			assert.Zero(t, time.Since(start), "who found a message goes first")
			pass(time.Second)
		}
		r.stop()
		require.NoError(t, <-r.ended)
	})
}

func TestNewPartitionsAreOpenedAtOnceWhenTold(t *testing.T) {
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

func TestAListenerThatHearsAgainHurriesClaims(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(0)
		r := run(g)
		pass(time.Second)
		g.setHook(func(string) error { return errAway })
		g.hints <- 0
		pass(30 * time.Second)
		for before := g.claims(); g.claims() == before; { // the next pause of 2s or more begins
			pass(time.Millisecond)
		}
		g.setHook(nil)
		g.add(1)
		start := time.Now()
		g.deaf <- struct{}{} // the listener connects anew, half a second later or more
		g.hints <- 0
		(<-r.Messages()).Ack()
		assert.Less(t, time.Since(start), 1500*time.Millisecond)
		r.stop()
		require.NoError(t, <-r.ended)
	})
}

func TestClaimsThatWorkAgainHurryTheListener(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(0)
		r := run(g)
		for range 7 { // so that the next pause is 16s or more
			g.deaf <- struct{}{}
		}
		g.hints <- 0 // is there to be heard
		g.setHook(func(string) error { return errAway })
		pass(testPoll + time.Second)
		g.setHook(nil)
		pass(3 * time.Second)
		assert.Empty(t, g.hints)
		r.stop()
		require.NoError(t, <-r.ended)
	})
}
