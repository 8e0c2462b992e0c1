package delivery

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

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

	earlier chan struct{} // tells guard that a lease ends before its next look

	mu   sync.Mutex
	held map[string]*item // guarded by mu; by id
	look time.Time        // guarded by mu; guard's next look
	told time.Time        // guarded by mu; when Redis was last told that the consumer is alive
	// about is what the consumer said of itself in its last heartbeat. Claims repeat it.
	about string // guarded by mu
	names bool   // owned by extend; about names messages
}

func newLeases(config Config, group Group, turns *backoff.Turns, report *reporter) *leases {
	l := &leases{
		config: config,
		group:  group,
		turns:  turns,
		report: report,
		margin: min(config.Lease/10, time.Second),
		// The first partition tells who asks whether a group is alive. A group that expires
		// does so in each partition by itself.
		says: config.About != nil,
		held: map[string]*item{},

		earlier: make(chan struct{}, 1),
	}
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
		if old := l.held[m.ID]; old != nil { // its lease ran out, and no other consumer claimed it
			l.lose(old)
			lost = append(lost, old)
		}
		items[i] = &all[i]
		items[i].Claimed, items[i].size = m, len(m.Body)+len(m.Metadata)
		items[i].arrived, items[i].trusted = now, l.until(sent)
		l.held[m.ID] = items[i]
	}
	if len(items) > 0 && l.until(sent).Before(l.look) { // the reply was slow
		tell(l.earlier)
	}
	return items
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
	delete(l.held, it.ID)
	if it.cancel != nil {
		it.cancel(ErrLeaseLost)
	}
}

// drop forgets settled deliveries. A message that was given back may already be held
// again: its new delivery stays.
func (l *leases) drop(settled []*item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, it := range settled {
		if l.held[it.ID] == it {
			delete(l.held, it.ID)
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

// extend extends all leases every third of their duration, and sooner after an error,
// until ctx ends.
func (l *leases) extend(ctx context.Context) {
	timer := time.NewTimer(l.config.Lease / 3)
	defer timer.Stop()
	trouble := trouble{report: l.report, what: observe.Extending}
	for failed := false; ; {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if failed && !l.turns.Wait(ctx) {
			return
		}
		next, err := l.config.Lease/3, l.extendAll(ctx, &trouble)
		if failed = err != nil && ctx.Err() == nil; failed {
			trouble.failed(err)
			next = min(next, max(l.config.Lease/12, minBackoff))
		}
		timer.Reset(next)
	}
}

func (l *leases) extendAll(ctx context.Context, trouble *trouble) error {
	all := l.all()
	l.describe()
	heartbeat := queue.Heartbeat{Consumer: l.config.Consumer, Lease: l.config.Lease, Presence: l.presence()}
	if len(all) == 0 && l.silent() {
		sent := time.Now()
		if _, err := l.group.Extend(ctx, heartbeat, nil); err == nil {
			l.said(sent)
		}
		return nil // nothing is lost by an error, and claims report the same
	}
	_, err := inChunks(all, queue.MaxMessages, func(held []queue.Held) error {
		sent := time.Now()
		stale, err := l.group.Extend(ctx, heartbeat, held)
		if err == nil {
			l.extended(held, stale, sent)
			l.said(sent)
			trouble.worked()
		}
		return err
	})
	return err
}

// said records that a call that was sent then has told Redis that the consumer is alive.
func (l *leases) said(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = sent
}

// silent tells whether Redis must be told now that the consumer is alive: claims do so at
// least once in a poll interval, unless all workers are busy with messages of other
// partitions.
func (l *leases) silent() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.says && time.Since(l.told) > max(l.config.alive()/3, l.config.PollInterval)
}

func (l *leases) all() []queue.Held {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]queue.Held, 0, len(l.held))
	for _, it := range l.held {
		list = append(list, queue.Held{Delivery: it.delivery(), HandedOut: it.handedOut.Load()})
	}
	return list
}

// extended applies the answer to a call. sent is when the call was sent.
func (l *leases) extended(held []queue.Held, stale []string, sent time.Time) {
	var lost []*item
	defer func() { l.report.leasesLost(lost) }()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range held {
		it := l.find(d.Delivery)
		switch {
		case it == nil:
		case slices.Contains(stale, d.ID):
			l.lose(it)
			lost = append(lost, it)
		default:
			it.trusted = l.until(sent)
			it.extended++
		}
	}
}

// guard gives up messages whose leases are no longer certain, until ctx ends. It needs no
// answer from Redis.
func (l *leases) guard(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var lost []*item
	for {
		if len(lost) == 0 {
			select {
			case <-timer.C:
			case <-l.earlier:
			case <-ctx.Done():
				return
			}
		}
		some, next := l.giveUp(time.Now())
		timer.Reset(time.Until(next))
		if lost = append(lost, some...); len(lost) > 0 {
			l.report.leasesLost(lost[:1]) // one, since other leases may end meanwhile
			lost = lost[1:]
		}
	}
}

// giveUp loses the leases that are not certain now. It returns their items, and when to
// look again.
func (l *leases) giveUp(now time.Time) (lost []*item, next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next = l.until(now)
	for _, it := range l.held {
		switch {
		case !now.Before(it.trusted):
			l.lose(it)
			lost = append(lost, it)
		case it.trusted.Before(next):
			next = it.trusted
		}
	}
	l.look = next
	return lost, next
}
