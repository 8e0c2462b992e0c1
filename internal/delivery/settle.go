package delivery

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

const (
	// maxBurials is how many burials one call sends at most. Each writes to several keys; more would keep Redis busy too
	// long.
	maxBurials = 500

	// maxNacks and maxReleases keep a call below 3,900 arguments: some hosted servers refuse more.
	maxNacks    = 750
	maxReleases = 950
)

// settler sends the outcomes of deliveries to Redis. Messages that are settled during one round of
// calls are sent in the next; no message waits for others to join it.
type settler struct {
	config  *Config
	group   Group
	leases  *leases
	hints   *hints
	spacing *backoff.Spacing
	report  *reporter
	calls   context.Context
	// settlers counts the goroutines of settle, leavers those of Leave
	settlers, leavers *sync.WaitGroup

	advanced  chan struct{} // signals fetch that messages have been settled
	releasing atomic.Int64  // messages to be released, until Redis has answered. While there are any, nothing is claimed

	mu      sync.Mutex
	pending round // guarded by mu
	running bool  // guarded by mu; settle runs, and will send what is pending
	ending  bool  // guarded by mu; settle ends for good once nothing is pending
	over    bool  // guarded by mu; settle has ended for good, so later outcomes are reported as unsettled
}

func (s *settler) ack(it *item) {
	it.how = observe.Acked
	s.add(func(r *round) { r.acks = append(r.acks, it) })
}

// forget drops an acked message whose end Redis already knows.
func (s *settler) forget(it *item) {
	it.how = observe.Acked
	s.settled([]*item{it}, nil)
	signal(s.advanced)
}

func (s *settler) nack(it *item, n queue.Nack) {
	switch {
	case n.Reason != "":
		it.how = observe.BuriedByHandler
	case n.Deferred:
		it.how = observe.Deferred
	default:
		it.how = observe.Nacked
	}
	n.Delivery = it.delivery()
	s.add(func(r *round) { r.nacks = append(r.nacks, nack{it, n, time.Now()}) })
}

// abandon makes a message due at once for other consumers.
func (s *settler) abandon(it *item) {
	it.how = observe.Abandoned
	s.add(func(r *round) { r.nacks = append(r.nacks, nack{it, queue.Nack{Delivery: it.delivery()}, time.Now()}) })
}

func (s *settler) release(items ...*item) {
	if len(items) == 0 {
		return
	}
	s.add(func(r *round) {
		s.releasing.Add(int64(len(items)))
		r.releases = append(r.releases, items...)
		for _, it := range items {
			it.how, it.Body = observe.Released, nil
		}
	})
}

func (s *settler) bury(it *item, reason string) {
	it.how, it.reason = observe.Undecodable, reason
	s.add(func(r *round) { r.burials = append(r.burials, it) })
}

// expire ends a message that has expired.
func (s *settler) expire(it *item) {
	it.how, it.reason = observe.Expired, "expired"
	s.add(func(r *round) {
		if s.config.DropExpired {
			r.acks = append(r.acks, it)
		} else {
			r.burials = append(r.burials, it)
		}
	})
}

func (s *settler) add(to func(*round)) {
	s.mu.Lock()
	to(&s.pending)
	s.wake()
	over := s.over
	s.mu.Unlock()
	if over {
		s.reportUnsettled()
	}
}

// wake starts settle unless it runs. The caller holds mu.
func (s *settler) wake() {
	if !s.running && !s.over {
		s.running = true
		s.settlers.Go(s.settle)
	}
}

// end makes the settler end for good once nothing is pending. It starts settle for that unless it runs.
func (s *settler) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = true
	s.wake()
}

// endRelease ends the count of releasing messages: their releases are pending now, or not needed.
func (s *settler) endRelease(messages int) {
	s.releasing.Add(-int64(messages))
	signal(s.advanced)
}

// settle settles what is pending. In the end, the consumer leaves the group.
func (s *settler) settle() {
	if over := s.run(s.calls); over {
		s.leases.leave()
		s.leavers.Go(func() {
			_ = s.group.Leave(s.calls, s.config.Consumer) // else it counts as alive for a while
		})
	}
}

// run sends rounds until nothing is pending or ctx ends, and returns whether the settler has ended for good. It repeats
// failed calls, because an ack that does not reach Redis makes a handler do the work twice.
func (s *settler) run(ctx context.Context) (over bool) {
	pause := backoff.Backoff{Min: minBackoff, Max: maxBackoff}
	for {
		var more bool
		if more, over = s.next(ctx); !more {
			break
		}
		err := s.send(ctx, s.collect())
		switch {
		case err == nil:
			pause.Reset()
			s.report.worked(observe.Settling)
			continue
		case ctx.Err() == nil:
			s.report.failed(observe.Settling, err)
		}
		_ = pause.Wait(ctx) && s.spacing.Wait(ctx) // next checks ctx
	}
	if over {
		s.reportUnsettled()
	}
	return over
}

// next reports whether there is something to send. If not, run must return. Unless the settler is over, add may start
// settle again.
func (s *settler) next(ctx context.Context) (more, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = ctx.Err() != nil || s.ending && s.pending.empty()
	s.running = !s.over && !s.pending.empty()
	return s.running, s.over
}

// reportUnsettled reports the settlements that will not be sent to Redis.
func (s *settler) reportUnsettled() {
	s.report.unsettled(s.collect().items())
}

func (s *settler) collect() round {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.pending
	s.pending = round{}
	return r
}

// send makes the calls of a round. A failed call does not delay the others, and its settlements are pending again.
func (s *settler) send(ctx context.Context, r round) error {
	acks, err1 := inChunks(r.acks, queue.MaxMessages, func(acks []*item) error { return s.sendAcks(ctx, acks) })
	nacks, err2 := inChunks(r.nacks, maxNacks, func(nacks []nack) error { return s.sendNacks(ctx, nacks) })
	releases, err3 := inChunks(r.releases, maxReleases, func(items []*item) error { return s.sendReleases(ctx, items) })
	burials, err4 := inChunks(r.burials, maxBurials, func(items []*item) error { return s.sendBurials(ctx, items) })
	s.requeue(round{acks, nacks, releases, burials})
	if in, due := soonest(r, nacks, releases); due {
		s.hints.add(in)
	}
	signal(s.advanced)
	return errors.Join(err1, err2, err3, err4)
}

func (s *settler) sendAcks(ctx context.Context, items []*item) error {
	s.leases.settling(items)
	acked, err := s.group.Ack(ctx, mapped(items, func(it *item) queue.Done { return queue.Done{Delivery: it.delivery(), Size: it.size} }))
	if err != nil {
		return err
	}
	s.settled(items, acked.Stale)
	if acked.Room { // this consumer claims first; the others are notified
		s.hints.add(0)
	}
	return nil
}

func (s *settler) sendNacks(ctx context.Context, nacks []nack) error {
	items := mapped(nacks, func(n nack) *item { return n.item })
	s.leases.settling(items)
	for i := range nacks {
		nacks[i].age()
	}
	stale, buried, err := s.group.Nack(ctx, s.config.MaxDeliveries, mapped(nacks, func(n nack) queue.Nack { return n.nack }))
	s.reportBuried(items, buried) // they are buried even after an error
	if err != nil {
		return err
	}
	for _, n := range nacks {
		n.item.failure = n.nack.Error
		if !n.item.buried && !slices.Contains(stale, n.item.ID) {
			n.item.retryIn = n.nack.Delay
		}
	}
	s.settled(items, stale)
	return nil
}

// reportBuried reports each nack that has made a dead message, once: a repeated nack gets the same answer.
func (s *settler) reportBuried(items []*item, buried []queue.Buried) {
	for _, b := range buried {
		i := slices.IndexFunc(items, func(it *item) bool { return it.ID == b.ID })
		if i < 0 || items[i].buried {
			continue
		}
		items[i].buried = true
		s.report.buried([]queue.Buried{b})
	}
}

func (s *settler) sendReleases(ctx context.Context, items []*item) error {
	s.leases.settling(items)
	stale, err := s.group.Release(ctx, mapped(items, func(it *item) queue.Release {
		return queue.Release{Delivery: it.delivery(), DueAt: it.DueAt, Age: time.Since(it.requested)}
	}))
	if err != nil {
		return err
	}
	s.releasing.Add(-int64(len(items)))
	s.settled(items, stale)
	return nil
}

func (s *settler) sendBurials(ctx context.Context, items []*item) error {
	s.leases.settling(items)
	stale, err := s.group.Bury(ctx, mapped(items, func(it *item) queue.Burial {
		return queue.Burial{Delivery: it.delivery(), Reason: it.reason}
	}))
	if err != nil {
		return err
	}
	for _, it := range items {
		if !slices.Contains(stale, it.ID) {
			s.report.buried([]queue.Buried{{ID: it.ID, Reason: it.reason}})
		}
	}
	s.settled(items, stale)
	return nil
}

// settled forgets and reports deliveries whose settlement Redis has answered.
func (s *settler) settled(items []*item, stale []string) {
	s.leases.settled(items, stale)
	for _, it := range items {
		s.report.settled(it, stale)
	}
}

func (s *settler) requeue(remaining round) {
	if remaining.empty() {
		return
	}
	s.add(func(r *round) {
		r.acks = append(remaining.acks, r.acks...)
		r.nacks = append(remaining.nacks, r.nacks...)
		r.releases = append(remaining.releases, r.releases...)
		r.burials = append(remaining.burials, r.burials...)
	})
}

// round is the settlements that are sent together.
type round struct {
	acks     []*item
	nacks    []nack
	releases []*item
	burials  []*item // messages that cannot be given to a handler
}

// nack is a message whose handler failed, did not finish in time, or decided about it.
type nack struct {
	item  *item
	nack  queue.Nack
	since time.Time // when nack.Delay began
}

// age shortens the delay of a postponed message by the time that has passed, so it is on time even if Redis was down.
func (n *nack) age() {
	if n.nack.Deferred {
		n.nack.Delay, n.since = max(0, n.nack.Delay-time.Since(n.since)), time.Now()
	}
}

func (r round) empty() bool {
	return len(r.acks)+len(r.nacks)+len(r.releases)+len(r.burials) == 0
}

// items are all messages of the round.
func (r round) items() []*item {
	return slices.Concat(r.acks, mapped(r.nacks, func(n nack) *item { return n.item }), r.releases, r.burials)
}

// soonest returns when the first of the messages that were nacked or released is due again.
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
