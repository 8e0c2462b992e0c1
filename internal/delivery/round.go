package delivery

import (
	"slices"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// round is the settlements that go out together.
type round struct {
	acks     []*item
	nacks    []nack
	releases []*item
	burials  []burial
}

// nack is a message whose handler failed, did not finish in time, or decided about it.
type nack struct {
	item  *item
	how   observe.Settlement
	nack  queue.Nack
	since time.Time // when nack.Delay began
}

// age shortens the delay of a message that is put off by what has passed since: it comes at its time, also if Redis was away.
func (n *nack) age() {
	if n.nack.Deferred {
		n.nack.Delay, n.since = max(0, n.nack.Delay-time.Since(n.since)), time.Now()
	}
}

// burial is a message that cannot be given to a handler.
type burial struct {
	item   *item
	how    observe.Settlement
	reason string
}

func (r *round) empty() bool {
	return len(r.acks)+len(r.nacks)+len(r.releases)+len(r.burials) == 0
}

// items are all messages of the round.
func (r *round) items() []*item {
	return slices.Concat(
		r.acks, mapped(r.nacks, func(n nack) *item { return n.item }),
		r.releases, mapped(r.burials, func(b burial) *item { return b.item }),
	)
}

// soonest is when the next of the sent nacks and releases is due again.
func soonest(sent round, unsentNacks []nack, unsentReleases []*item) (in time.Duration, due bool) {
	if len(sent.releases) > len(unsentReleases) {
		return 0, true
	}
	for _, n := range sent.nacks[:len(sent.nacks)-len(unsentNacks)] {
		if !n.item.buried && (!due || n.nack.Delay < in) {
			in, due = n.nack.Delay, true
		}
	}
	return in, due
}
