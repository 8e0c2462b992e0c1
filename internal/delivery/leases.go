package delivery

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// heartbeatDelay is how long after a notification of its group a consumer sends a heartbeat, unless a claim has been one. A
// group may end 9 s after it was notified: if the first attempt fails at once, a second one is in time.
const heartbeatDelay = 3 * time.Second

// ErrLeaseLost says that the consumer no longer holds the message: another consumer may
// have it, or it was cancelled, or its group was retired.
var ErrLeaseLost = errors.New("the lease of the message is lost")

// leases keeps the leases of all messages that the consumer holds in a partition: in the
// buffer, handed out, or while their acks are sent.
//
// A lease in Redis starts when the call that sets it runs, which is no earlier than when
// the call is sent. So by this host's monotonic clock, the lease is certain from the time of
// sending for its duration, minus a margin to notify the handler.
type leases struct {
	config       *Config
	group        Group
	margin       time.Duration
	reportsAlive bool // sends heartbeats even if nothing is held
	spacing      *backoff.Spacing
	report       *reporter
	alarm        *alarm // calls maintain

	mu          sync.Mutex
	held        map[string]*item // guarded by mu; by id
	checkAt     time.Time        // guarded by mu; when leases may stop being certain, or far ahead
	extendAt    time.Time        // guarded by mu; when to extend them; zero while that is under way
	aliveSentAt time.Time        // guarded by mu; when a call last recorded in Redis that the consumer is alive
	notifiedAt  time.Time        // guarded by mu; when the group was last notified, or the heartbeat after that has failed
	left        bool             // guarded by mu; the consumer leaves the group, so no heartbeat may bring it back
	// info is the consumer info of the last heartbeat. Claims repeat it.
	info            string // guarded by mu
	infoHasMessages bool   // owned by extend; info names messages

	failed bool // owned by extend
}

func newLeases(config *Config, group Group, spacing *backoff.Spacing, report *reporter, alarm *alarm) *leases {
	now := time.Now()
	l := &leases{
		config: config, group: group, spacing: spacing, report: report, alarm: alarm,
		margin: min(config.Lease/10, time.Second),
		// A consumer without info is on no list of consumers. Each partition has its own list, and expires groups by it.
		reportsAlive: config.ConsumerInfo != nil,
		held:         map[string]*item{},
		extendAt:     now.Add(config.Lease / 3),
	}
	l.checkAt = now.Add(idle)
	l.renewInfo()
	return l
}

// until returns when a lease stops being certain whose call was sent at a time.
func (l *leases) until(sent time.Time, lease time.Duration) time.Time {
	return sent.Add(lease - l.margin)
}

// hold starts keeping the leases of claimed messages. sent is when the answered copy of the claim was sent; an earlier copy
// may have started the leases.
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
		items[i].ArrivedAt, items[i].requested = now, sent
		items[i].trustedUntil = l.until(sent, m.LeasedUntil.Sub(m.AnsweredAt))
		l.held[m.ID] = items[i]
	}
	if len(items) > 0 {
		l.wake(items[0].trustedUntil)
	}
	return items
}

// wake rings the alarm if maintain must run earlier because of new leases, which are certain until ends. The caller
// holds mu.
func (l *leases) wake(ends time.Time) {
	sooner := false
	if ends.Before(l.checkAt) { // there was none, or the reply was slow
		l.checkAt, sooner = ends, true
	}
	if beat := ends.Add(l.margin - 2*l.config.Lease/3); beat.Before(l.extendAt) {
		l.extendAt, sooner = beat, true
	}
	if sooner {
		l.alarm.ring()
	}
}

// handOut stores cancel, which ends the context of the handler when the lease is lost. It
// returns false if the lease is already lost.
func (l *leases) handOut(it *item, cancel context.CancelCauseFunc) bool {
	var lost []*item
	defer func() { l.report.leasesLost(lost) }()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !it.lost && !time.Now().Before(it.trustedUntil) {
		l.lose(it)
		lost = append(lost, it)
	}
	it.cancel = cancel
	return !it.lost
}

// lose gives a message up. The caller holds mu, and reports the loss after it has released mu: a
// slow observer must not delay the end of other handlers' contexts.
func (l *leases) lose(it *item) {
	it.lost = true
	if l.held[it.ID] == it {
		delete(l.held, it.ID)
	}
	if it.cancel != nil {
		it.cancel(ErrLeaseLost)
	}
}

// settling must be called before sending a call that settles deliveries. From then on, a delivery
// unknown to Redis may have been settled by that call.
func (l *leases) settling(items []*item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, it := range items {
		it.sent++
	}
}

// settled forgets deliveries whose settlement Redis has answered. stale has the ids of those that
// were no longer current. A message that was released may already be held again: its new
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

func (l *leases) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held)
}
