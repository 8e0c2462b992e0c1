package delivery

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// settler tells Redis what has become of messages. What comes in while one round
// of calls is under way goes out in the next; nothing waits for company.
type settler struct {
	config Config
	group  Group
	leases *leases
	turns  *backoff.Turns
	log    journal
	// progress is told of each round, and when what it gave back is due, if anything.
	progress func(dueIn time.Duration, due bool)

	signal chan struct{} // there is something pending

	mu       sync.Mutex
	pending  round // guarded by mu
	released int   // guarded by mu; releases that Redis has not answered
}

// round is what goes out together.
type round struct {
	acks     []ack
	nacks    []queue.Nack
	releases []queue.Release
	burials  []queue.Burial
}

// ack is a message whose handler has succeeded.
type ack struct {
	queue.Delivery
	size int
}

func (r *round) empty() bool {
	return len(r.acks)+len(r.nacks)+len(r.releases)+len(r.burials) == 0
}

func newSettler(
	config Config, group Group, leases *leases, turns *backoff.Turns, log journal,
	progress func(dueIn time.Duration, due bool),
) *settler {
	return &settler{
		config: config, group: group, leases: leases, turns: turns, log: log,
		progress: progress, signal: make(chan struct{}, 1),
	}
}

func (s *settler) ack(it *item) {
	s.add(func(r *round) { r.acks = append(r.acks, ack{it.delivery(), it.size}) })
}

func (s *settler) nack(n queue.Nack) {
	s.add(func(r *round) { r.nacks = append(r.nacks, n) })
}

// abandon makes a message due at once for other consumers.
func (s *settler) abandon(it *item) { s.nack(queue.Nack{Delivery: it.delivery()}) }

func (s *settler) release(items ...*item) {
	if len(items) == 0 {
		return
	}
	s.add(func(r *round) {
		s.released += len(items)
		for _, it := range items {
			r.releases = append(r.releases, queue.Release{Delivery: it.delivery(), DueAt: it.DueAt})
			it.Body = nil
		}
	})
}

// expect notes that messages are about to be released, and returned that they have been
// or will not be, for which fetch may be waiting.
func (s *settler) expect(messages int) { s.returning(messages) }

func (s *settler) returned(messages int) {
	s.returning(-messages)
	s.progress(0, false)
}

func (s *settler) returning(messages int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released += messages
}

// releasing tells whether messages are on their way back.
func (s *settler) releasing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.released > 0
}

func (s *settler) bury(it *item, reason string) {
	s.add(func(r *round) {
		r.burials = append(r.burials, queue.Burial{Delivery: it.delivery(), Reason: reason})
	})
}

func (s *settler) add(to func(*round)) {
	s.mu.Lock()
	to(&s.pending)
	s.mu.Unlock()
	tell(s.signal)
}

// run sends rounds until ctx ends, or drained is closed and nothing is pending.
// Whatever fails is sent again: an ack that Redis has not seen is work done twice.
func (s *settler) run(ctx context.Context, drained <-chan struct{}) {
	pause := backoff.Backoff{Min: minBackoff, Max: maxBackoff}
	for s.await(ctx, drained) {
		if err := s.send(ctx, s.take()); err == nil {
			pause.Reset()
			continue
		} else if ctx.Err() == nil {
			s.config.Logger.Error("Cannot settle messages", err, nil)
		}
		if !pause.Wait(ctx) || !s.turns.Wait(ctx) {
			return
		}
	}
}

// await blocks until something is pending; false when there is no more to do.
func (s *settler) await(ctx context.Context, drained <-chan struct{}) bool {
	for {
		s.mu.Lock()
		empty := s.pending.empty()
		s.mu.Unlock()
		if !empty {
			return ctx.Err() == nil
		}
		select {
		case <-s.signal:
			continue
		case <-ctx.Done():
			return false
		case <-drained:
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return !s.pending.empty()
	}
}

func (s *settler) take() round {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.pending
	s.pending = round{}
	return r
}

// send makes the calls of a round. One that fails does not keep back the others;
// what did not arrive is pending again.
func (s *settler) send(ctx context.Context, r round) error {
	acks, err1 := each(r.acks, queue.MaxMessages, func(acks []ack) error { return s.sendAcks(ctx, acks) })
	nacks, err2 := each(r.nacks, queue.MaxMessages, func(nacks []queue.Nack) error { return s.sendNacks(ctx, nacks) })
	releases, err3 := each(r.releases, queue.MaxMessages, func(releases []queue.Release) error {
		_, err := s.group.Release(ctx, releases)
		if err == nil {
			s.returning(-len(releases))
		}
		return s.settled("Released messages", err, list(releases, func(r queue.Release) queue.Delivery { return r.Delivery }))
	})
	burials, err4 := each(r.burials, queue.MaxMessages, func(burials []queue.Burial) error {
		_, err := s.group.Bury(ctx, burials)
		if err == nil {
			s.log.buried(list(burials, func(b queue.Burial) queue.Buried { return queue.Buried{ID: b.ID, Reason: b.Reason} }))
		}
		return s.settled("", err, list(burials, func(b queue.Burial) queue.Delivery { return b.Delivery }))
	})
	s.putBack(round{acks, nacks, releases, burials})
	s.progress(soonest(r, nacks, releases))
	return errors.Join(err1, err2, err3, err4)
}

func (s *settler) sendAcks(ctx context.Context, acks []ack) error {
	missing, err := s.group.Ack(ctx, list(acks, func(a ack) queue.Done { return queue.Done{ID: a.ID, Size: a.size} }))
	s.log.ids("Ack came too late", missing)
	return s.settled("Acked messages", err, list(acks, func(a ack) queue.Delivery { return a.Delivery }))
}

func (s *settler) sendNacks(ctx context.Context, nacks []queue.Nack) error {
	stale, buried, err := s.group.Nack(ctx, s.config.MaxDeliveries, nacks)
	s.log.ids("Nack came too late", stale)
	s.log.buried(buried)
	if err == nil {
		s.log.nacked(nacks)
	}
	return s.settled("", err, list(nacks, func(n queue.Nack) queue.Delivery { return n.Delivery }))
}

// soonest is when what has been given back is due again.
func soonest(sent round, nacksLeft []queue.Nack, releasesLeft []queue.Release) (time.Duration, bool) {
	if len(sent.releases) > len(releasesLeft) {
		return 0, true
	}
	done := sent.nacks[:len(sent.nacks)-len(nacksLeft)]
	if len(done) == 0 {
		return 0, false
	}
	least := slices.MinFunc(done, func(a, b queue.Nack) int { return cmp.Compare(a.Delay, b.Delay) })
	return least.Delay, true
}

func (s *settler) putBack(left round) {
	if left.empty() {
		return
	}
	s.add(func(r *round) {
		r.acks = append(left.acks, r.acks...)
		r.nacks = append(left.nacks, r.nacks...)
		r.releases = append(left.releases, r.releases...)
		r.burials = append(left.burials, r.burials...)
	})
}

// settled ends the leases of messages once Redis knows what has become of them.
func (s *settler) settled(what string, err error, deliveries []queue.Delivery) error {
	if err == nil {
		s.leases.drop(deliveries)
		s.log.deliveries(what, deliveries)
	}
	return err
}

// each calls do with parts of a list until one fails, and returns what is left.
func each[T any](values []T, size int, do func([]T) error) (left []T, err error) {
	for len(values) > 0 {
		n := min(size, len(values))
		if err := do(values[:n]); err != nil {
			return values, err
		}
		values = values[n:]
	}
	return nil, nil
}

func list[T, U any](values []T, of func(T) U) []U {
	result := make([]U, len(values))
	for i, value := range values {
		result[i] = of(value)
	}
	return result
}
