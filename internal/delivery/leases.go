package delivery

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// idle is how long a partition that holds nothing needs no look at its leases.
const idle = time.Hour

// leases keeps the leases of all messages of a partition that are held: in the
// buffer, handed out, or with their acks on the way.
//
// A lease in Redis starts when the call that sets it runs, which is no earlier than when
// the call is sent. So by this host's monotonic clock it is certain for its duration from
// the sending. A margin leaves time to tell the handler.
type leases struct {
	config Config
	group  Group
	margin time.Duration
	says   bool // that the consumer is alive, even if it holds nothing
	turns  *backoff.Turns
	report *reporter
	keeper *keeper

	mu   sync.Mutex
	held map[string]*item // guarded by mu; by id
	look time.Time        // guarded by mu; when leases may stop being certain, or far ahead
	beat time.Time        // guarded by mu; when to extend them; zero while that is under way
	lost []*item          // guarded by mu; to be reported
	told time.Time        // guarded by mu; when Redis was last told that the consumer is alive
	// about is what the consumer said of itself in its last heartbeat. Claims repeat it.
	about string // guarded by mu
	names bool   // owned by extend; about names messages

	failed bool // owned by extend
}

func newLeases(p *partition) *leases {
	config, now := p.subscription.config, time.Now()
	l := &leases{
		config: config,
		group:  p.group,
		turns:  p.turns,
		report: &p.report,
		keeper: p.subscription.keeper,
		margin: min(config.Lease/10, time.Second),
		// The first partition tells who asks whether a group is alive. A group that expires
		// does so in each partition by itself.
		says: config.About != nil,
		held: map[string]*item{},
		beat: now.Add(config.Lease / 3),
	}
	l.look = now.Add(idle)
	l.describe()
	return l
}

// until is when a lease stops being certain if its call was sent at a time.
func (l *leases) until(sent time.Time) time.Time { return sent.Add(l.config.Lease - l.margin) }

// hold starts keeping the leases of claimed messages. sent is when the claim was sent.
func (l *leases) hold(claimed []queue.Claimed, sent time.Time) []*item {
	items, all, now := make([]*item, len(claimed)), make([]item, len(claimed)), time.Now()
	var lost []*item
	defer func() { l.report.leasesLost(lost) }()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, m := range claimed {
		if old := l.held[m.ID]; old != nil && old.sent == 0 { // its lease ran out, and no other consumer claimed it
			l.lose(old)
			lost = append(lost, old)
		}
		items[i] = &all[i]
		items[i].Claimed, items[i].size = m, len(m.Body)+len(m.Metadata)
		items[i].ArrivedAt, items[i].requested, items[i].trusted = now, sent, l.until(sent)
		l.held[m.ID] = items[i]
	}
	if len(items) > 0 {
		l.wake(now, l.until(sent))
	}
	return items
}

// wake ends the rest of an idle keeper, whose leases may stop being certain at a time. The
// caller holds mu.
func (l *leases) wake(now, ends time.Time) {
	sooner := false
	if ends.Before(l.look) { // there was none, or the reply was slow
		l.look, sooner = ends, true
	}
	if beat := now.Add(l.config.Lease / 3); beat.Before(l.beat) {
		l.beat, sooner = beat, true
	}
	if sooner {
		tell(l.keeper.sooner)
	}
}

// handOut keeps cancel, which tells a message's handler that the lease is lost. It
// returns false if the lease is already lost.
func (l *leases) handOut(it *item, cancel context.CancelCauseFunc) bool {
	var lost []*item
	defer func() { l.report.leasesLost(lost) }()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !it.lost && !time.Now().Before(it.trusted) {
		l.lose(it)
		lost = append(lost, it)
	}
	it.cancel = cancel
	return !it.lost
}

// lose gives a message up. The caller holds mu, and tells the observer once it has let go of
// it: a slow observer must not keep other handlers from being told.
func (l *leases) lose(it *item) {
	it.lost = true
	if l.held[it.ID] == it {
		delete(l.held, it.ID)
	}
	if it.cancel != nil {
		it.cancel(ErrLeaseLost)
	}
}

// settling says that a call to settle deliveries is about to be sent. From then on, that Redis
// knows one of them no more may be the work of that call.
func (l *leases) settling(items []*item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, it := range items {
		it.sent++
	}
}

// settled forgets deliveries whose settlement Redis has answered. stale has the ids of those that
// were no longer current. A message that was given back may already be held again: its new
// delivery stays.
func (l *leases) settled(items []*item, stale []string) {
	var lost []*item
	defer func() { l.report.leasesLost(lost) }()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, it := range items {
		if l.held[it.ID] == it {
			delete(l.held, it.ID)
		}
		if it.doubted && it.sent == 1 && slices.Contains(stale, it.ID) { // sent again, it is stale by itself
			l.lose(it)
			lost = append(lost, it)
		}
	}
}

// find returns a delivery if it is still held. The caller holds mu.
func (l *leases) find(d queue.Delivery) *item {
	if it := l.held[d.ID]; it != nil && it.Token == d.Token {
		return it
	}
	return nil
}

func (l *leases) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held)
}
