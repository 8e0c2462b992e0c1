package delivery

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

func TestAnIdleSubscriptionOnlyPolls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(0)
		r := run(t, g)
		pass(time.Minute)
		r.end(t)
		assert.InDelta(t, 14, len(g.requests), 1, "one claim each poll interval, or a little sooner")
		assert.Empty(t, g.extended, "with nothing held there is nothing to extend")
	})
}

func TestASubscriptionSleepsUntilTheNextMessageIsDue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(0)
		g.next = 1234 * time.Millisecond
		start := time.Now()
		r := run(t, g)
		pass(2 * time.Second)
		r.end(t)
		require.Len(t, g.claimed, 2)
		assert.Equal(t, g.next, g.claimed[1].Sub(start))
	})
}

func TestAHintWakesASubscription(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(0)
		start := time.Now()
		r := run(t, g)
		pass(time.Second)
		g.hints <- 700 * time.Millisecond
		pass(time.Second)
		r.end(t)
		require.Len(t, g.claimed, 2)
		assert.Equal(t, 1700*time.Millisecond, g.claimed[1].Sub(start))
	})
}

func TestAHintDuringAClaimIsNotForgotten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(0)
		g.latency = 100 * time.Millisecond
		r := run(t, g)
		pass(50 * time.Millisecond)
		g.hints <- 0
		pass(time.Second)
		r.end(t)
		assert.Len(t, g.claimed, 2)
	})
}

func TestANackedMessageIsClaimedWhenItIsDue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		r := run(t, g) // its nacks are due after a second, and notifications are lost
		start := time.Now()
		(<-r.Messages()).Nack()
		pass(2 * time.Second)
		r.end(t)
		assert.Equal(t, time.Second, g.claimed[len(g.claimed)-1].Sub(start))
	})
}

func TestAConsumerYieldsToAMoreSuccessfulConsumer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(0)
		g.next = 100 * time.Millisecond
		r := run(t, g)
		for range 20 { // another consumer claims each message first, and says so
			pass(100*time.Millisecond + 10*time.Microsecond)
			g.claimHints <- 100 * time.Millisecond
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
			assert.Zero(t, time.Since(start), "a consumer that found a message goes first")
			pass(time.Second)
		}
	})
}

func TestAFailedClaimIsRetriedWithItsNumberAndBackoff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		g.setHook(func(string) error { return errDown })
		r := run(t, g)
		pass(20 * time.Second)
		g.setHook(nil)
		(<-r.Messages()).Ack()
		pass(time.Second)
		r.end(t)
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

func places(ended []observe.OutageEnded) (list []observe.Place) {
	for _, e := range ended {
		list = append(list, e.Place)
	}
	return list
}

func TestARetiredGroupIsReportedOnceEvenAfterAnotherFailure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		w := &witness{}
		g.setHook(failing("claim", errDown))
		r := run(t, g, observed(w))
		pass(time.Second)
		g.setHook(failing("claim", queue.ErrGroupRetired))
		pass(10 * testPoll)
		retired := 0
		for _, e := range eventsOf[observe.Failed](w) {
			if errors.Is(e.Err, queue.ErrGroupRetired) {
				retired++
			}
		}
		assert.Equal(t, 1, retired)
		whole := observe.Place{Topic: "t", Group: "g", Partition: -1}
		assert.Contains(t, eventsOf[observe.OutageBegan](w), observe.OutageBegan{
			Place: whole, Activity: observe.Claiming, Err: queue.ErrGroupRetired, Others: 1,
		})
		assert.Empty(t, eventsOf[observe.OutageEnded](w))
		g.setHook(nil) // it is restored
		(<-r.Messages()).Ack()
		ended := places(eventsOf[observe.OutageEnded](w))
		assert.ElementsMatch(t, []observe.Place{whole, place}, ended)
	})
}

func TestAConsumerContinuesFromTheLastRequestNumberInRedis(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const later = 100
		g := newFakeGroup(1)
		g.setHook(func(call string) error {
			var err error
			if call == "claim" {
				g.view(func() {
					if g.requests[len(g.requests)-1].Number <= later {
						err = &queue.StaleRequestError{Last: later}
					}
				})
			}
			return err
		})
		var failed []error
		r := run(t, g, func(c *Config) {
			c.Observer.Failed = func(e observe.Failed) { failed = append(failed, e.Err) }
		})
		select {
		case msg := <-r.Messages():
			msg.Ack()
		case <-time.After(testPoll):
			t.Error("the message does not come")
		}
		r.end(t)
		assert.Len(t, failed, 1)
		assert.Greater(t, g.requests[1].Number, int64(later))
	})
}
