package delivery

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

const (
	// maxClaim is how many messages one claim asks for at most. Batches of more than a
	// few hundred save nothing and keep Redis busy for milliseconds.
	maxClaim = 500

	// maxOrdered is how many messages one claim asks for at most while messages with ordering keys arrive. Messages whose
	// keys are busy must be queued by key, which costs more than small batches.
	maxOrdered = 100

	// claimBytes is how many bytes of messages one claim asks for at most.
	claimBytes = 1 << 20

	// unreadPause is how long nothing is claimed while nobody reads the channel.
	unreadPause = 150 * time.Millisecond

	// maxReserved is how long a reservation holds: a claim that hangs must not keep
	// the budget from other partitions.
	maxReserved = 80 * time.Millisecond
)

// budget limits what may be claimed: a message for each free worker and, in advance, the
// messages for which workers will soon be free. Only an accepted message shows that a consumer
// reads the channel. So a window limits how many messages may wait: it starts at one and widens
// with each accepted message. Partitions get their shares in the order in which they ask. It is
// guarded by buffer.mu.
type budget struct {
	asking   []*ask
	limit    int // messages that a claim asks for at most: maxClaim or maxOrdered
	reserved int // messages that claims under way may get
	bytes    int // bytes that those claims may get

	unread atomic.Bool // an offer was not accepted in time
	probe  bool        // while unread: one message may be claimed, to find out whether a consumer reads
	retry  *time.Timer // sets probe; nil if it does not run
}

// ask is a partition's request for a share.
type ask struct {
	answer chan *reservation // holds one
	need   need
}

// need is which messages a partition has.
type need int

const (
	anyMessage need = iota
	freeWorker      // the next message is only for a free worker
)

// reservation is how much a claim may get.
type reservation struct {
	messages int
	free     int // how many of the messages are for free workers
	bytes    int

	drains int // buffer.drains when it was made
	live   bool
	expiry *time.Timer
}

// reserve waits until the budget allows a claim; nil when ctx ends. fill ends the
// reservation.
func (b *buffer) reserve(ctx context.Context, n need) *reservation {
	a := &ask{answer: make(chan *reservation, 1), need: n}
	b.mu.Lock()
	b.budget.asking = append(b.budget.asking, a)
	b.grant()
	b.mu.Unlock()
	select {
	case r := <-a.answer:
		return r
	case <-ctx.Done():
	}
	b.mu.Lock()
	b.budget.asking = slices.DeleteFunc(b.budget.asking, func(other *ask) bool { return other == a })
	b.mu.Unlock()
	select {
	case r := <-a.answer:
		b.fill(r, nil)
	default:
	}
	return nil
}

// grant gives the budget to partitions that ask. The caller holds mu.
func (b *buffer) grant() {
	for len(b.budget.asking) > 0 && !b.closed {
		messages, free := b.claimable()
		b.full.Store(true) // before reading the counts: doneWaiting changes them before it reads full
		window := int(b.window.Load()-b.waiting.Load()) - b.budget.reserved
		bytes := b.maxBytes - int(b.bytes.Load()) - b.budget.bytes
		if window > 0 && bytes > 0 {
			b.full.Store(false)
		}
		messages, free = min(messages, window), min(free, window)
		if messages <= 0 || bytes <= 0 {
			return
		}
		next := slices.IndexFunc(b.budget.asking, func(a *ask) bool { return free > 0 || a.need == anyMessage })
		if next < 0 {
			return
		}
		share := min(max(1, messages/len(b.budget.asking)), b.budget.limit)
		b.budget.asking[next].answer <- b.reservation(share, min(free, share), min(claimBytes, bytes))
		b.budget.asking = slices.Delete(b.budget.asking, next, next+1)
	}
}

// claimable returns how many more messages may be claimed, and how many of them for free
// workers. Without a free worker, nothing is claimable until half of the messages that may be
// held ahead are taken or, with fast handlers, half a claim. So Redis works on the next claim
// while messages are being handled. The caller holds mu.
func (b *buffer) claimable() (messages, free int) {
	idle := b.free() * b.each
	free = max(0, idle-b.budget.reserved)
	if b.budget.unread.Load() {
		if free == 0 || !b.budget.probe {
			return 0, 0
		}
		return 1, 1
	}
	taken := b.queued() + b.budget.reserved - idle
	enough := func(ahead int) bool { return free > 0 || ahead-taken > min(ahead/2, b.budget.limit/2) }
	if !enough(b.pace.ahead(b.maxWorkers, b.each, 2*b.budget.limit)) { // not even if all workers were fast
		return 0, 0
	}
	ahead := b.ahead(time.Now())
	if !enough(ahead) {
		return 0, 0
	}
	return max(ahead-taken, free), free
}

// ahead is how many messages the workers will probably handle within lookAhead. A worker
// whose message takes longer than usual is expected to be as slow with the next. The
// caller holds mu.
func (b *buffer) ahead(now time.Time) int {
	rate := float64(b.free()) * b.pace.rate(0)
	for _, w := range b.workers {
		rate += b.pace.rate(now.Sub(w.since))
	}
	return min(2*b.budget.limit, int(rate)*b.each)
}

// setClaimLimit sets how many messages the next claims ask for at most. The id of a claimed message
// shows whether the messages have ordering keys. The caller holds mu.
func (b *budget) setClaimLimit(id string) {
	b.limit = maxClaim
	if script.TraitsOf(id).OrderingKey != "" {
		b.limit = maxOrdered
	}
}

// maxHeld is how many messages a partition may hold before claiming stops. It is more than handlers and the buffer hold, so
// a partition reaches it only if acks do not reach Redis in time.
func (b *buffer) maxHeld() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.maxWorkers*b.each + 4*b.budget.limit
}

// reservation makes a reservation that holds for maxReserved. The caller holds mu.
func (b *buffer) reservation(messages, free, bytes int) *reservation {
	r := &reservation{messages: messages, free: free, bytes: bytes, drains: b.drains, live: true}
	b.budget.reserved += messages
	b.budget.bytes += bytes
	b.budget.probe = false
	r.expiry = time.AfterFunc(maxReserved, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !r.live { // it ended meanwhile
			return
		}
		b.end(r)
		b.budget.probe = true
		b.grant()
	})
	return r
}

// end ends a reservation if it has not ended. The caller holds mu.
func (b *buffer) end(r *reservation) {
	if !r.live {
		return
	}
	r.live = false
	r.expiry.Stop()
	b.budget.reserved -= r.messages
	b.budget.bytes -= r.bytes
}

// markUnread records that nobody reads the channel. From now on, one message at a time is
// claimed to find a reader: after a pause, or when a handler ends, because it may be the
// reader. The caller holds mu.
func (b *buffer) markUnread() {
	b.budget.stopRetry()
	b.budget.unread.Store(true)
	b.budget.probe = false
	var retry *time.Timer
	retry = time.AfterFunc(unreadPause, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.budget.retry == retry {
			b.budget.retry = nil
			b.budget.probe = true
			b.grant()
		}
	})
	b.budget.retry = retry
}

// noteExpiredOffer records that an offer was not accepted before its message expired.
func (b *buffer) noteExpiredOffer() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.markUnread()
}

// stopRetry stops the timer that sets probe. The caller holds mu.
func (b *budget) stopRetry() {
	if b.retry != nil {
		b.retry.Stop()
	}
	b.retry = nil
}

// markRead records that the channel is read.
func (b *buffer) markRead() {
	if !b.budget.unread.Load() { // the usual case
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.budget.unread.Swap(false) {
		b.budget.stopRetry()
		b.grant()
	}
}

// lookAhead is how far ahead messages are claimed. It is half of maxHold, so that handlers
// that are slower than expected still take the messages in time.
const lookAhead = maxHold / 2

// pace is how fast messages are handled.
type pace struct {
	cycle time.Duration // average time of one message, or batch, at one worker; 0: not known yet
}

// note records how long a message took, from when a worker got it to its ack or nack. A
// slow message counts at once, fast ones gradually, since holding too much costs others.
func (p *pace) note(cycle time.Duration) {
	switch {
	case p.cycle == 0:
		p.cycle = max(cycle, 1)
	case cycle > p.cycle:
		p.cycle = (p.cycle + cycle) / 2
	default:
		p.cycle -= (p.cycle - cycle) / 8
	}
}

// rate is how many messages, or batches, a worker handles within lookAhead if it has been busy with
// one for this long. It is 0 before the first message is handled, and for a worker that
// has been busy for lookAhead.
func (p *pace) rate(busy time.Duration) float64 {
	if p.cycle == 0 || busy >= lookAhead {
		return 0
	}
	return float64(lookAhead) / float64(max(p.cycle, busy))
}

// ahead is the rate of all workers together if none is slow, but at most a limit.
func (p *pace) ahead(workers, each, limit int) int {
	return min(limit, int(float64(workers)*p.rate(0))*each)
}
