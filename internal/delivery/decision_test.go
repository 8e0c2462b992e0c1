package delivery

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// deciding makes nacks what handlers have decided about each message.
func deciding(decisions map[string]queue.Nack) func(*Config) {
	return func(c *Config) {
		c.Redelivery = func(_ context.Context, msg *message.Message) (queue.Nack, error) { return decisions[msg.UUID], nil }
	}
}

func TestAHandlerDecisionIsSentWithTheNackAndReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(3)
		w := &witness{}
		r := run(t, g, observed(w), deciding(map[string]queue.Nack{
			"0000": {Delay: time.Hour, Metadata: []byte("step 2"), Deferred: true},
			"0001": {Reason: "no such order", Metadata: []byte("bad")},
			"0002": {Delay: time.Minute},
		}))
		for range 3 {
			msg := <-r.Messages()
			pass(time.Second)
			msg.Nack()
		}
		pass(time.Second)
		r.end(t)
		assert.Equal(t, []queue.Nack{
			{Delivery: queue.Delivery{ID: "0000", Receipt: "1"}, Delay: time.Hour, Metadata: []byte("step 2"), Deferred: true},
			{Delivery: queue.Delivery{ID: "0001", Receipt: "1"}, Reason: "no such order", Metadata: []byte("bad")},
			{Delivery: queue.Delivery{ID: "0002", Receipt: "1"}, Delay: time.Minute},
		}, g.nacked)
		assert.Equal(t, []observe.Settled{
			{Place: place, ID: "0000", Token: 7, Settlement: observe.Deferred, Took: time.Second, RetryIn: time.Hour},
			{Place: place, ID: "0001", Token: 7, Settlement: observe.BuriedByHandler, Took: time.Second},
			{Place: place, ID: "0002", Token: 7, Settlement: observe.Nacked, Took: time.Second, RetryIn: time.Minute},
		}, eventsOf[observe.Settled](w))
		assert.Equal(t, []observe.Buried{{Place: place, ID: "0001", Reason: "no such order"}}, eventsOf[observe.Buried](w))
	})
}

// TestADeferredMessageIsOnTimeDespiteAnOutage: a repeated nack sends only the rest of the delay.
func TestADeferredMessageIsOnTimeDespiteAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(2)
		g.nackFails = errDown
		w := &witness{}
		r := run(t, g, observed(w), deciding(map[string]queue.Nack{
			"0000": {Delay: time.Hour, Deferred: true}, "0001": {Delay: time.Second, Deferred: true},
		}))
		for range 2 {
			(<-r.Messages()).Nack()
		}
		pass(10 * time.Minute)
		g.view(func() { g.nackFails, g.nacked = nil, nil })
		pass(time.Minute)
		r.end(t)
		left := map[string]time.Duration{}
		for _, n := range g.nacked {
			left[n.ID] = n.Delay
		}
		assert.InDelta(t, (50 * time.Minute).Seconds(), left["0000"].Seconds(), 60)
		for _, settled := range eventsOf[observe.Settled](w) {
			assert.Equal(t, left[settled.ID], settled.RetryIn)
		}
		assert.Equal(t, map[string]time.Duration{"0000": left["0000"], "0001": 0}, left, "the time of the second is over")
	})
}

// TestALostReplyDoesNotChangeADecision: the nack is sent again unchanged, and reported once.
func TestALostReplyDoesNotChangeADecision(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(2)
		g.nackFails = errDown // behind what it has done
		w := &witness{}
		r := run(t, g, observed(w), deciding(map[string]queue.Nack{
			"0000": {Delay: time.Hour, Deferred: true}, "0001": {Reason: "no such order"},
		}))
		for range 2 {
			(<-r.Messages()).Nack()
		}
		pass(time.Second)
		g.view(func() {
			require.Greater(t, len(g.nacked), 2)
			for _, n := range g.nacked {
				assert.Equal(t, n.ID == "0000", n.Deferred)
				assert.Equal(t, n.ID == "0001", n.Reason != "")
			}
			g.nackFails = nil
		})
		pass(10 * time.Second)
		r.end(t)
		assert.Len(t, eventsOf[observe.Buried](w), 1)
		assert.ElementsMatch(t, []observe.Settlement{observe.Deferred, observe.BuriedByHandler},
			mapped(eventsOf[observe.Settled](w), func(s observe.Settled) observe.Settlement { return s.Settlement }))
	})
}

// TestADecisionWithoutANackIsDropped: an Ack counts, and so does the end of CloseTimeout.
func TestADecisionWithoutANackIsDropped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(2)
		w := &witness{}
		r := run(t, g, observed(w), deciding(map[string]queue.Nack{
			"0000": {Reason: "no such order"}, "0001": {Delay: time.Hour, Deferred: true},
		}))
		(<-r.Messages()).Ack()
		<-r.Messages() // it is not settled
		r.end(t)
		assert.Equal(t, []string{"0000"}, g.acked)
		assert.Equal(t, []queue.Nack{{Delivery: queue.Delivery{ID: "0001", Receipt: "1"}}}, g.nacked)
		assert.Equal(t, []observe.Settlement{observe.Acked, observe.Abandoned},
			mapped(eventsOf[observe.Settled](w), func(s observe.Settled) observe.Settlement { return s.Settlement }))
		assert.Empty(t, eventsOf[observe.Buried](w))
	})
}

// TestABurialTriggersNoClaim because nothing becomes due.
func TestABurialTriggersNoClaim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		r := run(t, g, deciding(map[string]queue.Nack{"0000": {Reason: "no such order"}}))
		msg := <-r.Messages()
		pass(10 * time.Millisecond)
		claims := g.claims()
		msg.Nack()
		pass(time.Second)
		assert.Equal(t, claims, g.claims())
	})
}
