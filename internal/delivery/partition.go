package delivery

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// partition is a topic partition of a subscription: it claims messages into the buffer,
// which all partitions share, keeps their leases and settles them.
type partition struct {
	subscription *Subscription
	number       int
	group        Group
	hints        hints
	leases       *leases
	settler      *settler
	report       reporter
	turns        *backoff.Turns // for everything that fails and is retried
	listening    chan struct{}  // tells claim that notifications work again
	called       chan struct{}  // tells claim that a notification was for the group alone: it may be restored
	listener     Listener       // set before fetch starts
	need         need           // owned by fetch; which messages the next claim gets
	requests     int64          // owned by fetch; the number of the last one
	retired      bool           // owned by fetch; the group was when it claimed last
}

func newPartition(s *Subscription, number int) *partition {
	p := &partition{
		subscription: s,
		number:       number,
		group:        s.topic.Group(number),
		hints:        newHints(s.config),
		report:       newReporter(s, number),
		turns:        backoff.NewTurns(minBackoff),
		listening:    make(chan struct{}, 1),
		called:       make(chan struct{}, 1),
	}
	p.leases = newLeases(p)
	p.settler = newSettler(p)
	return p
}

// run starts the partition.
func (p *partition) run() {
	s := p.subscription
	p.settler.start = func() { s.running.settlers.Go(p.settle) }
	s.running.keepers.Add(1) // before OnError and OnHint start others; until stopListening has ended
	p.listener = s.topic.Listen(p.number, s.config.Consumer, newNotifications(p, &s.running.keepers))
	s.running.fetchers.Go(p.fetch)
}

// stopListening ends the notifications, and does not wait for that.
func (p *partition) stopListening() {
	go func() { // ends with Close; run has added it to keepers
		defer p.subscription.running.keepers.Done()
		p.listener.Close()
	}()
}

// settle settles what is pending. In the end, the consumer leaves the group.
func (p *partition) settle() {
	calls := p.subscription.calls
	if over := p.settler.run(calls); over {
		p.leases.leave()
		p.subscription.running.leavers.Go(func() {
			_ = p.group.Leave(calls, p.subscription.config.Consumer) // else it counts as alive for a while
		})
	}
}

// item is one claimed message.
type item struct {
	queue.Claimed
	partition *partition
	requested time.Time     // when its claim set out
	size      int           // bytes of body and metadata
	expiresAt time.Time     // by Redis's clock, zero for never; owned by its worker
	took      time.Duration // how long a handler had the message; set before it is settled
	failure   string        // what went wrong, as far as a nack says; set before its report
	buried    bool          // owned by the settler; it is reported as a dead letter
	dropped   bool          // it has expired, and is no dead letter; set before it is settled
	// handedOut says that a handler has the message, so that the delivery counts.
	handedOut atomic.Bool
	// ended says that Redis already knows that the group is done with the message.
	ended atomic.Bool

	trustedUntil time.Time // guarded by leases.mu; when the lease stops being certain
	lost         bool      // guarded by leases.mu
	// extended is how often the lease was extended. Guarded by leases.mu.
	extended int
	// sent is how often its settlement was sent. Guarded by leases.mu.
	sent int
	// doubted says that Redis did not know the delivery any more while its settlement was under
	// way. Guarded by leases.mu.
	doubted bool
	cancel  context.CancelCauseFunc // guarded by leases.mu; set when it is handed out
}

func (it *item) delivery() queue.Delivery { return queue.Delivery{ID: it.ID, Token: it.Token} }

// expired tells whether the message has expired, so that no handler gets it.
func (it *item) expired() bool {
	return !it.expiresAt.IsZero() && !it.redisClock(time.Now()).Before(it.expiresAt)
}

// expiry gets a value when the message expires; nil if it does not.
func (it *item) expiry() <-chan time.Time {
	if it.expiresAt.IsZero() {
		return nil
	}
	return time.After(it.expiresAt.Sub(it.redisClock(time.Now())))
}

// redisClock is Redis's clock at a time by this host's clock: its clock when it answered the claim, plus the time since then.
func (it *item) redisClock(now time.Time) time.Time {
	return it.AnsweredAt.Add(now.Sub(it.ArrivedAt))
}

// signal sends a signal on a channel that holds one.
func signal(channel chan<- struct{}) {
	select {
	case channel <- struct{}{}:
	default:
	}
}
