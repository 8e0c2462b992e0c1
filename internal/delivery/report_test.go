package delivery

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/outage"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// witness keeps every event that an observer is told.
type witness struct {
	mu     sync.Mutex
	events []any // guarded by mu
}

func keep[E any](w *witness) func(E) {
	return func(event E) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.events = append(w.events, event)
	}
}

func (w *witness) observer() observe.Observer {
	return observe.Observer{
		Claimed:        keep[observe.Claimed](w),
		Delivered:      keep[observe.Delivered](w),
		Settled:        keep[observe.Settled](w),
		Buried:         keep[observe.Buried](w),
		LeaseLost:      keep[observe.LeaseLost](w),
		GroupExpired:   keep[observe.GroupExpired](w),
		GroupRecreated: keep[observe.GroupRecreated](w),
		Failed:         keep[observe.Failed](w),
		OutageBegan:    keep[observe.OutageBegan](w),
		OutageEnded:    keep[observe.OutageEnded](w),
	}
}

// observed makes a witness the observer of a subscription.
func observed(w *witness) func(*Config) {
	return func(c *Config) {
		c.Observer, c.Place = w.observer(), observe.Place{Topic: "t", Group: "g"}
	}
}

// eventsOf returns the events of one type, in their order.
func eventsOf[E any](w *witness) (events []E) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, event := range w.events {
		if e, ok := event.(E); ok {
			events = append(events, e)
		}
	}
	return events
}

var place = observe.Place{Topic: "t", Group: "g"}

func TestTheObserverReceivesEachStepOfADelivery(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(0)
		g.body = []byte("four")
		w := &witness{}
		r := run(t, g, observed(w))
		pass(time.Second)
		g.add(1)
		pass(300 * time.Millisecond) // late when it is claimed
		g.hints <- 0
		pass(50 * time.Millisecond) // later still when it is read
		msg := <-r.Messages()
		pass(2 * time.Second)
		msg.Ack()
		pass(time.Second)
		r.end(t)
		assert.Equal(t, []any{
			observe.Claimed{Place: place, IDs: []string{"0000"}, Bytes: 4},
			observe.Delivered{Place: place, ID: "0000", Token: 7, Attempt: 1, Lateness: 350 * time.Millisecond},
			observe.Settled{Place: place, ID: "0000", Token: 7, Settlement: observe.Acked, Took: 2 * time.Second},
		}, w.events)
	})
}

func TestTheObserverReceivesTheOutcomeOfEachDelivery(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(4)
		g.returns = true
		w := &witness{}
		errMetadata := errors.New("too large")
		r := run(t, g, observed(w), garbled("0000"), func(c *Config) {
			c.Redelivery = func(context.Context, *message.Message) (queue.Nack, error) {
				return queue.Nack{Delay: time.Minute}, errMetadata
			}
		})
		nacked := <-r.Messages()
		require.Equal(t, "0001", nacked.UUID)
		pass(time.Second)
		nacked.Nack()
		<-r.Messages() // it is not settled
		r.end(t)
		assert.Equal(t, []observe.Failed{
			{Place: place, Activity: observe.Decoding, ID: "0000", Err: errGarbage},
			{Place: place, Activity: observe.Redelivering, ID: "0001", Err: errMetadata},
		}, eventsOf[observe.Failed](w))
		assert.Equal(t, []observe.Buried{{Place: place, ID: "0000", Reason: "cannot decode: garbage"}}, eventsOf[observe.Buried](w))
		settled := eventsOf[observe.Settled](w)
		for _, want := range []observe.Settled{
			{Place: place, ID: "0000", Token: 7, Settlement: observe.Undecodable},
			{Place: place, ID: "0001", Token: 7, Settlement: observe.Nacked, Took: time.Second, RetryIn: time.Minute},
			{Place: place, ID: "0002", Token: 7, Settlement: observe.Abandoned, Took: testCloseTimeout},
		} {
			assert.Contains(t, settled, want)
		}
	})
}

func TestEachClaimedMessageIsSettledOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(3000)
		g.latency = time.Millisecond
		w := &witness{}
		r := run(t, g, observed(w), func(c *Config) { c.MaxInFlight = 10 })
		learn(r, 1000)
		for range 10 { // slow, so that the buffer is given back
			<-r.Messages()
		}
		pass(time.Second)
		r.end(t)
		var claimed, settled []string
		for _, e := range eventsOf[observe.Claimed](w) {
			claimed = append(claimed, e.IDs...)
		}
		released := 0
		for _, e := range eventsOf[observe.Settled](w) {
			settled = append(settled, e.ID)
			if e.Settlement == observe.Released {
				released++
				assert.Zero(t, e.Took)
			}
		}
		assert.NotZero(t, released)
		slices.Sort(claimed)
		slices.Sort(settled)
		assert.Equal(t, claimed, settled)
	})
}

func TestALostLeaseAndItsStaleNackAreReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		w := &witness{}
		r := run(t, g, observed(w))
		msg := <-r.Messages()
		g.view(func() { g.stale["0000"] = true })
		<-msg.Context().Done()
		require.ErrorIs(t, context.Cause(msg.Context()), ErrLeaseLost)
		msg.Nack()
		r.end(t)
		assert.Equal(t, []observe.LeaseLost{{Place: place, ID: "0000", Token: 7, Attempt: 1, Delivered: true}}, eventsOf[observe.LeaseLost](w))
		require.Len(t, eventsOf[observe.Settled](w), 1)
		assert.True(t, eventsOf[observe.Settled](w)[0].Stale)
	})
}

func TestAStaleBurialIsNotReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(2)
		g.stale["0000"] = true
		w := &witness{}
		r := run(t, g, observed(w), garbled("0000"), garbled("0001"))
		pass(time.Second)
		r.end(t)
		assert.Equal(t, []observe.Settled{
			{Place: place, ID: "0000", Token: 7, Settlement: observe.Undecodable, Stale: true},
			{Place: place, ID: "0001", Token: 7, Settlement: observe.Undecodable},
		}, eventsOf[observe.Settled](w))
		assert.Equal(t, []observe.Buried{{Place: place, ID: "0001", Reason: "cannot decode: garbage"}}, eventsOf[observe.Buried](w))
	})
}

func TestOnlyANackThatReschedulesReportsRetryIn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(3)
		g.deadReasons, g.stale["0001"] = map[string]string{"0000": "enough"}, true
		w := &witness{}
		r := run(t, g, observed(w))
		for range 3 {
			(<-r.Messages()).Nack()
		}
		r.end(t)
		assert.Equal(t, []observe.Settled{
			{Place: place, ID: "0000", Token: 7, Settlement: observe.Nacked},
			{Place: place, ID: "0001", Token: 7, Settlement: observe.Nacked, Stale: true},
			{Place: place, ID: "0002", Token: 7, Settlement: observe.Nacked, RetryIn: time.Second},
		}, eventsOf[observe.Settled](w))
	})
}

func TestFailuresAndTheEndOfAnOutageAreReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		w := &witness{}
		r := run(t, g, observed(w))
		msg := <-r.Messages()
		g.setHook(func(string) error { return errDown })
		msg.Ack()
		g.hints <- 0
		pass(time.Second) // the hint has been taken: it must not end the outage that follows
		g.silent <- struct{}{}
		pass(testLease/3 + time.Second)
		g.setHook(nil)
		g.hints <- 0
		pass(time.Minute)
		assert.Len(t, eventsOf[observe.OutageEnded](w), len(eventsOf[observe.OutageBegan](w)), "also if nothing is left to extend")
		r.end(t)
		for _, what := range []observe.Activity{observe.Claiming, observe.Settling, observe.Extending, observe.Listening} {
			assert.True(t, slices.ContainsFunc(eventsOf[observe.Failed](w), func(f observe.Failed) bool {
				return f.Activity == what && f.Place == place && errors.Is(f.Err, errDown)
			}), what)
			var after []time.Duration
			for _, r := range eventsOf[observe.OutageEnded](w) {
				if r.Activity == what {
					after = append(after, r.After)
				}
			}
			require.Len(t, after, 1, "%s is reported once", what)
			assert.NotZero(t, after[0])
			began := slices.DeleteFunc(eventsOf[observe.OutageBegan](w), func(b observe.OutageBegan) bool { return b.Activity != what })
			assert.Equal(t, []observe.OutageBegan{{Place: place, Activity: what, Err: began[0].Err}}, began)
		}
	})
}

func TestWithoutAnObserverNothingIsAllocated(t *testing.T) {
	r := &reporter{observer: &observe.Observer{}, outages: outage.New(observe.Observer{}, 0)}
	it := &item{Claimed: queue.Claimed{ID: "a"}}
	items, stale, buried := []*item{it}, []string{"a"}, []queue.Buried{{ID: "a"}}
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		r.claimed(items)
		r.handedOut(it)
		r.settled(it, stale)
		r.buried(buried)
		r.leasesLost(items)
		r.failed(observe.Claiming, errDown)
		r.worked(observe.Claiming)
	}))
	assert.True(t, r.handedOut(it).IsZero(), "the clock is not read either")
}

func TestAStoppedSubscriptionEndsItsOutages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g, w := newFakeGroup(1), &witness{}
		g.setHook(func(string) error { return errDown })
		r := run(t, g, observed(w))
		pass(time.Second)
		assert.Empty(t, eventsOf[observe.OutageEnded](w))
		r.stop()
		require.ErrorIs(t, <-r.ended, errUnsettled, "a claim may have leased messages")
		ended := eventsOf[observe.OutageEnded](w)
		require.Len(t, ended, len(eventsOf[observe.OutageBegan](w)))
		require.NotEmpty(t, ended)
		for _, e := range ended {
			assert.True(t, e.Stopped)
		}
	})
}
