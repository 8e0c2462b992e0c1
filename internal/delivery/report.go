package delivery

import (
	"context"
	"slices"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/outage"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// reporter reports what happens in one place. Only it calls the observer. It
// costs nothing where the observer has no function.
type reporter struct {
	observer *observe.Observer
	outages  *outage.State // of the subscription
	place    observe.Place
}

func newReporter(c *Config, outages *outage.State, partition int) reporter {
	place := c.Place
	place.Partition = partition
	return reporter{observer: &c.Observer, outages: outages, place: place}
}

// forTopic returns the reporter for events of the topic as a whole.
func (r *reporter) forTopic() *reporter {
	topic := *r
	topic.place.Partition = -1
	return &topic
}

func (r *reporter) claimed(items []*item) {
	if r.observer.Claimed == nil || len(items) == 0 {
		return
	}
	bytes := 0
	for _, it := range items {
		bytes += it.size
	}
	ids := mapped(items, func(it *item) string { return it.ID })
	r.observer.Claimed(observe.Claimed{Place: r.place, IDs: ids, Bytes: bytes})
}

// handedOut reports that a handler has a message, and returns the time; zero if the observer does not need it.
func (r *reporter) handedOut(it *item) (at time.Time) {
	if r.observer.Delivered == nil && r.observer.Settled == nil {
		return at
	}
	at = time.Now()
	if r.observer.Delivered != nil {
		r.observer.Delivered(observe.Delivered{
			Place: r.place, ID: it.ID, Token: it.Token, Attempt: it.Attempt, Lateness: it.redisClock(at).Sub(it.DueAt),
		})
	}
	return at
}

// settled reports how a delivery has ended. stale has the ids of deliveries that were no
// longer current.
func (r *reporter) settled(it *item, stale []string) {
	if r.observer.Settled != nil {
		r.observer.Settled(observe.Settled{
			Place: r.place, ID: it.ID, Token: it.Token, Settlement: it.how, Took: it.took, RetryIn: it.retryIn, Error: it.failure,
			Stale: slices.Contains(stale, it.ID),
		})
	}
}

// unsettled reports deliveries whose outcome did not reach Redis before the end.
func (r *reporter) unsettled(items []*item) {
	for _, it := range items {
		if it.handedOut.Load() {
			it.took = max(it.took, 1) // 0 means that no handler had the message
		}
		it.how = observe.Unsettled
		r.settled(it, nil)
	}
}

func (r *reporter) buried(dead []queue.Buried) {
	if r.observer.Buried == nil {
		return
	}
	for _, b := range dead {
		r.observer.Buried(observe.Buried{Place: r.place, ID: b.ID, Reason: b.Reason})
	}
}

func (r *reporter) leasesLost(items []*item) {
	if r.observer.LeaseLost == nil {
		return
	}
	for _, it := range items {
		r.observer.LeaseLost(observe.LeaseLost{
			Place: r.place, ID: it.ID, Token: it.Token, Attempt: it.Attempt, Delivered: it.handedOut.Load(),
		})
	}
}

// ended reports groups of the topic that have ended.
func (r *reporter) ended(groups []queue.Ended) {
	if r.observer.GroupExpired == nil {
		return
	}
	for _, g := range groups {
		place := observe.Place{Topic: r.place.Topic, Group: g.Group, Partition: -1}
		r.observer.GroupExpired(observe.GroupExpired{Place: place, Freed: g.Freed})
	}
}

// recreated reports that the group was recreated.
func (r *reporter) recreated() {
	if r.observer.GroupRecreated != nil {
		r.observer.GroupRecreated(observe.GroupRecreated{Place: r.forTopic().place})
	}
}

// messageFailed reports a failure that concerns one message.
func (r *reporter) messageFailed(what observe.Activity, id string, err error) {
	if r.observer.Failed != nil {
		r.observer.Failed(observe.Failed{Place: r.place, Activity: what, ID: id, Err: err})
	}
}

func (r *reporter) failed(what observe.Activity, err error) { r.outages.Failed(what, r.place, err) }

// worked returns whether the activity had failed before.
func (r *reporter) worked(what observe.Activity) bool { return r.outages.Worked(what, r.place) }

// stopped reports that nothing is left to do.
func (r *reporter) stopped(what observe.Activity) { r.outages.Stopped(what, r.place) }

// attempted reports how an attempt has ended, unless ctx has.
func (r *reporter) attempted(ctx context.Context, what observe.Activity, err error) {
	switch {
	case err == nil:
		r.worked(what)
	case ctx.Err() == nil:
		r.failed(what, err)
	}
}
