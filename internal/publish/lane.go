package publish

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/link"
	"github.com/redisdelay/watermill-redisdelay/internal/outage"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

const (
	// maxIdle is how many lanes are kept that nothing is published to, since they know the connection.
	maxIdle = 100

	// linger is how long an idle sender waits for the next call before it ends.
	linger = 100 * time.Millisecond

	minBackoff = 20 * time.Millisecond
	maxBackoff = time.Second

	// maxSenders is how many batches of a lane are under way at most. With Redis a millisecond
	// away, more add nothing.
	maxSenders = 4

	// workOfMessage is about how long Redis and this process work for a message.
	workOfMessage = 8 * time.Microsecond

	// farTrip is how long a call is under way, its work left out, when Redis is far. Nearer
	// than that, a second batch under way costs more than it saves: fewer calls share a batch.
	farTrip = 300 * time.Microsecond
)

// wholeTopic is the partition number of calls for a topic as a whole.
const wholeTopic = -1

// destination is a topic partition.
type destination struct {
	topic     string
	partition int // or wholeTopic
}

func (d destination) place() observe.Place {
	return observe.Place{Topic: d.topic, Partition: d.partition}
}

// lane is the traffic to one destination: one batch at a time or, while Redis is far, a few.
// Each sender has a publisher's record of its own, so each record sees one batch at a time.
type lane struct {
	window *link.Window // immutable

	// guarded by lanes.mu
	waiting []*batch // calls join the last one
	senders [maxSenders]sender
	trips   trips
	async   int // batches with PublishAsync calls that have not ended
}

// sender is a goroutine that sends batches of a lane. The first sender of a lane sends all
// batches with message keys: if an attempt whose outcome is unknown arrives late, the record of
// that sender tells Redis not to replace what was published under the key since. It also sends
// every batch while PublishAsync calls have no outcome: the next call of the same goroutine, of
// either kind, is stored after them only if the same sender sends it.
type sender struct {
	signal      chan struct{} // signalled when a batch waits for it
	runs, sends bool
}

func newLane() *lane {
	l := &lane{window: link.New(maxWindow)}
	for n := range l.senders {
		l.senders[n].signal = make(chan struct{}, 1)
	}
	return l
}

// lanes sends batches, in a lane for each destination. It is safe for concurrent use.
type lanes struct {
	// immutable
	topics  *topics
	ids     *script.IDs
	outages *outage.State
	common  queue.Batch // what all batches have in common
	records records
	pending *pending // the PublishAsync calls

	calls   sync.WaitGroup // all calls of the Publisher; added to under mu, unless closed
	running sync.WaitGroup // the senders of all lanes, and what tells of PublishAsync calls
	closing chan struct{}  // closed by close

	mu     sync.Mutex
	open   map[destination]*lane // guarded by mu; lanes in use, and a few others
	name   string                // guarded by mu; of the publisher
	number int64                 // guarded by mu; of the last batch, for all lanes
	closed bool                  // guarded by mu
}

func newLanes(t *topics, ids *script.IDs, outages *outage.State, p *pending, common queue.Batch) *lanes {
	ls := &lanes{topics: t, ids: ids, outages: outages, pending: p, common: common, open: map[destination]*lane{}, closing: make(chan struct{})}
	ls.name = ls.newName()
	p.calls, p.running, p.closing = &ls.calls, &ls.running, ls.closing
	return ls
}

// newName returns a unique name for the publisher.
func (ls *lanes) newName() string { return ls.ids.Next(time.Now(), script.Traits{}) }

// begin begins a call, which may need several batches; calls.Done ends it.
func (ls *lanes) begin() error {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		return ErrClosed
	}
	ls.calls.Add(1)
	return nil
}

// store stores messages in one batch. It returns when they are stored, when they certainly
// cannot be, when ctx ends or at the deadline. With ErrOutcomeUnknown they may be stored;
// with any other error they are not. ignored are the keys of duplicates that were dropped.
func (ls *lanes) store(ctx context.Context, deadline time.Time, to destination, messages []Message) (ignored []string, err error) {
	if err := checkDeadline(ctx, deadline); err != nil {
		return nil, err
	}
	b, c := ls.join(deadline, to, messages) //nolint:contextcheck // a batch outlives any one of its callers
	for {
		if cause := b.wait(ctx, deadline); cause != nil {
			return ls.abandon(c, cause)
		}
		if !b.moved {
			return c.ignored, c.err
		}
		b = ls.batchOf(c)
	}
}

// checkDeadline is the error of a call for which it is too late.
func checkDeadline(ctx context.Context, deadline time.Time) error {
	if ctx.Err() != nil {
		return fmt.Errorf("not stored: %w", context.Cause(ctx))
	}
	if !time.Now().Before(deadline) {
		return fmt.Errorf("not stored: %w", context.DeadlineExceeded)
	}
	return nil
}

// batchOf is the batch that a call is in.
func (ls *lanes) batchOf(c *call) *batch {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return c.batch
}

// abandon ends a call whose caller stops waiting, unless its batch is done.
func (ls *lanes) abandon(c *call, cause error) (ignored []string, err error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if c.batch.finished() {
		return c.ignored, c.err
	}
	return nil, c.batch.abandon(c, cause)
}

// join adds messages to a batch that has not been sent.
func (ls *lanes) join(deadline time.Time, to destination, messages []Message) (*batch, *call) {
	c := newCall(messages, deadline)
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.add(to, &c, messages), &c
}

// add adds a call to a batch that has not been sent. The caller holds mu.
func (ls *lanes) add(to destination, c *call, messages []Message) *batch {
	l := ls.open[to]
	if l == nil {
		l = newLane()
		ls.open[to] = l
	}
	if n := len(l.waiting); n == 0 || l.waiting[n-1].part || !l.waiting[n-1].fits(c, l.window.Size()) {
		l.waiting = append(l.waiting, newBatch(ls.common))
	}
	last := l.waiting[len(l.waiting)-1]
	last.add(c, messages)
	l.mark(last, c)
	ls.rouse(to, l, last)
	return last
}

// mark notes that a batch has a PublishAsync call, if it has.
func (l *lane) mark(b *batch, c *call) {
	if c.future != nil && !b.async {
		b.async = true
		l.async++
	}
}

// takes tells whether a sender may send a batch.
func (l *lane) takes(n int, b *batch) bool {
	return n == 0 || !b.keyed && l.async == 0 && l.trips.far()
}

// ended says that a batch does not count any more. The caller holds mu.
func (l *lane) ended(b *batch) {
	if b.async {
		l.async--
	}
}

// find returns the number of a sender that has nothing to do but may send a batch, rather
// one that runs; -1 if there is none.
func (l *lane) find(b *batch) int {
	found := -1
	for n, s := range l.senders {
		if !s.sends && l.takes(n, b) && (found < 0 || s.runs && !l.senders[found].runs) {
			found = n
		}
	}
	return found
}

// rouse lets a sender that has nothing to do send a batch that waits. Those that are busy
// look when they have sent theirs. The caller holds mu.
func (ls *lanes) rouse(to destination, l *lane, b *batch) {
	n := l.find(b)
	switch {
	case n < 0:
	case l.senders[n].runs:
		select {
		case l.senders[n].signal <- struct{}{}:
		default:
		}
	default:
		l.senders[n].runs = true
		ls.running.Go(func() { ls.run(to, l, n) })
	}
}

// run sends batches of a lane one after another. It lingers after the last, since a new
// goroutine for each call would cost more than the call.
func (ls *lanes) run(to destination, l *lane, n int) {
	idle := time.NewTimer(linger)
	defer idle.Stop()
	for {
		runtime.Gosched() // lets more callers join the batch
		ctx, cancel := context.WithCancel(context.Background())
		if b := ls.next(to, l, n, cancel); b != nil {
			took := ls.send(ctx, to, l, b)
			cancel()
			ls.sent(to, l, n, b, took)
			continue
		}
		cancel()
		idle.Reset(linger)
		select {
		case <-l.senders[n].signal: // the channel never changes
			continue
		case <-idle.C:
		case <-ls.closing:
		}
		if ls.shut(to, l, n) {
			return
		}
	}
}

// next returns the next batch for a sender; nil if no call waits for it.
func (ls *lanes) next(to destination, l *lane, n int, cancel context.CancelFunc) *batch {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l.waiting = slices.DeleteFunc(l.waiting, func(b *batch) bool {
		if b.callers == 0 {
			l.ended(b)
		}
		return b.callers == 0
	})
	first := l.first(n)
	if first < 0 {
		return nil
	}
	b := l.waiting[first]
	l.waiting = append(l.waiting[:first], l.waiting[first+1:]...)
	l.senders[n].sends = true
	for _, other := range l.waiting {
		ls.rouse(to, l, other)
	}
	ls.number++
	b.seal(ls.name, n, ls.number, cancel)
	b.request.Within = l.within(b.bytes, b.deadline)
	return b
}

// first is the index of the first batch that a sender may send; -1 for none.
func (l *lane) first(n int) int {
	return slices.IndexFunc(l.waiting, func(b *batch) bool { return l.takes(n, b) })
}

// sent records that a batch has ended, and how long that took; 0 if it failed.
func (ls *lanes) sent(to destination, l *lane, n int, b *batch, took time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l.senders[n].sends = false
	l.ended(b)
	if took > 0 {
		l.trips.add(took, b.messages)
	}
	for _, other := range l.waiting { // another sender may have to take it now
		ls.rouse(to, l, other)
	}
}

// shut ends a sender unless a call waits for it, and with the last sender perhaps the lane.
func (ls *lanes) shut(to destination, l *lane, n int) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l.first(n) >= 0 {
		return false
	}
	l.senders[n].runs = false
	if len(ls.open) > maxIdle && !slices.ContainsFunc(l.senders[:], func(s sender) bool { return s.runs }) {
		delete(ls.open, to)
	}
	return true
}

// close waits until the calls under way have ended, or ctx has. Later calls fail with
// ErrClosed.
func (ls *lanes) close(ctx context.Context) error {
	ls.mu.Lock()
	if !ls.closed {
		ls.closed = true
		close(ls.closing)
	}
	ls.mu.Unlock()
	if err := await(ctx, &ls.calls); err != nil { // they end at their deadlines
		return err
	}
	return await(ctx, &ls.running)
}

// trips is how long the calls of a lane take, without the work for their messages.
type trips struct{ mean time.Duration }

func (t *trips) add(took time.Duration, messages int) {
	trip := max(0, took-time.Duration(messages)*workOfMessage)
	if t.mean == 0 {
		t.mean = trip
	}
	t.mean += (trip - t.mean) / 8
}

// far tells whether a lane gains by sending several batches at once.
func (t *trips) far() bool { return t.mean > farTrip }
