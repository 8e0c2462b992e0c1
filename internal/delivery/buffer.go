package delivery

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// maxHold is how long a consumer may hold a message that none of its handlers takes and
// that an idle consumer could handle.
//
// Three such consumers, one after another, stay within the 300 ms that a message may
// wait: two may hold it ahead, and a third may offer it to a reader that has stopped.
const maxHold = 80 * time.Millisecond

// buffer holds, in order, the claimed messages that no handler has, and gives them to the
// workers. It takes out messages that wait too long (drainOverdue), and decides how many more
// may be claimed (budget.go). It is safe for concurrent use.
type buffer struct {
	maxBytes   int                       // immutable
	maxWorkers int                       // immutable
	each       int                       // immutable; how many messages a worker takes at once
	start      func(w *worker, it *item) // set before the first claim; starts a worker with a message
	alarm      *alarm                    // rung when drainOverdue has something to watch
	watched    atomic.Bool               // drainOverdue will be called
	waiting    atomic.Int64              // messages that no handler has
	bytes      atomic.Int64              // of those messages
	window     atomic.Int64              // limit of waiting; see budget
	full       atomic.Bool               // a partition waits because there are too many messages

	mu      sync.Mutex
	workers []*worker // guarded by mu; each has a message; items is empty unless there are maxWorkers
	items   []*item   // guarded by mu; those before head are taken out
	head    int       // guarded by mu
	closed  bool      // guarded by mu; takes no more messages
	drains  int       // guarded by mu; how often drain was called
	pace    pace      // guarded by mu
	budget  budget    // guarded by mu
}

func newBuffer(maxBytes, workers, each int, alarm *alarm) *buffer {
	b := &buffer{maxBytes: maxBytes, maxWorkers: workers, each: each, alarm: alarm}
	b.window.Store(int64(each))
	b.budget.limit = maxClaim
	return b
}

// The stages of a worker and its message. An offer ends when it is accepted or recalled,
// whichever is first.
const (
	preparing int32 = iota
	offering
	handling
	recalled
)

// worker hands out one message at a time.
type worker struct {
	recall chan struct{} // holds a signal to release the message on offer
	stage  atomic.Int32

	item  *item     // guarded by buffer.mu
	since time.Time // guarded by buffer.mu; when the worker got the item
}

// free is how many more workers can be started. The caller holds mu.
func (b *buffer) free() int { return b.maxWorkers - len(b.workers) }

// startWorker starts a worker with a message. The caller holds mu.
func (b *buffer) startWorker(it *item, now time.Time) {
	w := &worker{recall: make(chan struct{}, 1), item: it, since: now}
	b.workers = append(b.workers, w)
	b.start(w, it)
}

// next finishes a worker's message and returns its next one; nil if none waits, and then the worker must end.
func (b *buffer) next(w *worker) *item {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.grant()
	now := time.Now()
	b.finish(w, now)
	it := b.pop()
	if w.item, w.since = it, now; it == nil {
		b.workers = slices.DeleteFunc(b.workers, func(other *worker) bool { return other == w })
	}
	return it
}

// more takes the further messages of a worker's batch, after the first one.
func (b *buffer) more() (items []*item) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(items) < b.each-1 && b.queued() > 0 {
		items = append(items, b.pop())
	}
	b.grant()
	return items
}

// finish records that a worker is done with its message. The caller holds mu.
func (b *buffer) finish(w *worker, now time.Time) {
	switch w.stage.Load() {
	case handling:
		b.pace.note(now.Sub(w.since))
		b.budget.probe = true // the handler that settled it may read the next
	case preparing:
		b.budget.probe = true // the message was not offered
	}
	w.stage.Store(preparing)
}

// pop takes out the first item; nil if there is none. The caller holds mu.
func (b *buffer) pop() *item {
	if b.queued() == 0 {
		return nil
	}
	it := b.items[b.head]
	b.items[b.head] = nil
	b.head++
	if b.head == len(b.items) {
		b.items, b.head = b.items[:0], 0
	}
	return it
}

// queued is how many items there are. The caller holds mu.
func (b *buffer) queued() int { return len(b.items) - b.head }

// fill adds the messages of a claim, and ends its reservation. If messages were taken out while
// the claim was under way, it returns the new messages to be released, because they are later than
// those taken out.
func (b *buffer) fill(r *reservation, items []*item) (back []*item) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.grant()
	b.end(r)
	if len(items) == 0 || b.closed || r.drains != b.drains {
		b.budget.probe = true // the claim did not show whether there is a reader
		return items
	}
	b.budget.setClaimLimit(items[len(items)-1].ID)
	now := time.Now()
	for _, it := range items {
		b.count(1, it)
		if b.free() > 0 {
			b.startWorker(it, now)
		} else {
			b.items = append(b.items, it)
		}
	}
	if b.queued() > 0 {
		b.watch()
	}
	return nil
}

// watch makes drainOverdue watch the items, or an offer that is not accepted at once.
func (b *buffer) watch() {
	if !b.watched.Load() && !b.watched.Swap(true) {
		b.alarm.ring()
	}
}

// count counts messages that no handler has.
func (b *buffer) count(messages int, it *item) {
	b.waiting.Add(int64(messages))
	b.bytes.Add(int64(messages * it.size))
}

// doneWaiting records that a message no longer waits. If a consumer has taken it, or it has ended without a handler, the window
// widens by one, and the next messages need not be claimed one by one.
func (b *buffer) doneWaiting(it *item, taken bool) {
	b.count(-1, it)
	if taken {
		if b.window.Load() < int64(2*maxClaim+b.maxWorkers*b.each) {
			b.window.Add(1)
		}
		b.markRead()
	}
	if b.full.Load() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.grant()
	}
}

// drainOverdue takes out all messages if one has waited for maxHold: the handlers have
// become slow or nobody reads, and other consumers may be free. It returns the messages to
// release, and when to check again; zero if nothing waits.
func (b *buffer) drainOverdue(now time.Time) (back []*item, next time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watched.Store(false) // before oldest, so that no offer is missed
	oldest, ok := b.oldest()
	if !ok {
		return nil, time.Time{}
	}
	b.watched.Store(true)
	if next = oldest.Add(maxHold); next.After(now) {
		return nil, next
	}
	b.window.Store(int64(b.each))
	b.recallOffers(now)
	return b.drain(), now
}

// oldest is when the longest waiting message was claimed. It may be in the buffer or on
// offer. The caller holds mu.
func (b *buffer) oldest() (since time.Time, ok bool) {
	if b.queued() > 0 {
		since, ok = b.items[b.head].ArrivedAt, true
	}
	for _, w := range b.workers {
		if w.stage.Load() == offering && (!ok || w.item.ArrivedAt.Before(since)) {
			since, ok = w.item.ArrivedAt, true
		}
	}
	return since, ok
}

// recallOffers makes workers release messages that they have offered for too long. The
// caller holds mu.
func (b *buffer) recallOffers(now time.Time) {
	some := false
	for _, w := range b.workers {
		if now.Sub(w.item.ArrivedAt) < maxHold || !w.stage.CompareAndSwap(offering, recalled) {
			continue
		}
		if !some { // before the recall: if the offer is accepted late, markRead undoes it
			b.markUnread()
		}
		some = true
		w.item.releasing.Add(1)
		w.recall <- struct{}{}
	}
}

// drain takes out all items. It voids the claims under way, because their messages are later
// than the items. The caller holds mu.
func (b *buffer) drain() []*item {
	back := slices.Clone(b.items[b.head:])
	for _, it := range back {
		b.count(-1, it)
		it.releasing.Add(1) // now, so that no claim can overtake it
	}
	clear(b.items)
	b.items, b.head = b.items[:0], 0
	b.drains++
	return back
}

// drainAll takes out all items.
func (b *buffer) drainAll() []*item {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.drain()
}

// close takes out all items; messages of later claims are released at once.
func (b *buffer) close() []*item {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.budget.stopRetry()
	return b.drain()
}
