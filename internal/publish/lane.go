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
	// maxIdle is how many idle lanes are kept, because each knows the throughput of its connection.
	maxIdle = 100

	// linger is how long an idle sender waits for the next call before it ends.
	linger = 100 * time.Millisecond

	minBackoff = 20 * time.Millisecond
	maxBackoff = time.Second
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

// lane is the traffic to one destination, one batch at a time.
type lane struct {
	window *link.Window  // immutable
	signal chan struct{} // signalled when a batch waits for the sender

	// guarded by lanes.mu
	waiting []*batch // calls join the last one
	runs    bool     // whether there is a goroutine that sends batches
}

func newLane() *lane { return &lane{window: link.New(maxWindow), signal: make(chan struct{}, 1)} }

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
	running sync.WaitGroup // the senders of all lanes, and the goroutine that reports PublishAsync calls
	closing chan struct{}  // closed by close

	mu     sync.Mutex
	open   map[destination]*lane // guarded by mu; lanes in use, and up to maxIdle others
	name   string                // guarded by mu; of the publisher
	number int64                 // guarded by mu; of the last batch, for all lanes
	closed bool                  // guarded by mu
}

func newLanes(config Config, t *topics, ids *script.IDs, outages *outage.State) *lanes {
	ls := &lanes{
		topics: t, ids: ids, outages: outages, open: map[destination]*lane{}, closing: make(chan struct{}),
		common: queue.Batch{Window: config.Window, Replicas: config.Replicas, ReplicaTimeout: config.ReplicaTimeout},
	}
	ls.name = ls.newName()
	ls.pending = newPending(config, &ls.calls, &ls.running, ls.closing)
	return ls
}

// newName returns a unique name for the publisher.
func (ls *lanes) newName() string { return ls.ids.Next(time.Now(), script.Traits{}) }

// begin begins a call, which may need several batches; end ends it.
func (ls *lanes) begin() error {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		return ErrClosed
	}
	ls.calls.Add(1)
	return nil
}

func (ls *lanes) end() { ls.calls.Done() }

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

// checkDeadline returns an error if ctx has ended or the deadline has passed.
func checkDeadline(ctx context.Context, deadline time.Time) error {
	if ctx.Err() != nil {
		return fmt.Errorf("not stored: %w", script.EndOf(ctx))
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
	ls.rouse(to, l)
	return last
}

// rouse starts or wakes the sender. A busy sender checks for waiting batches after its current one. The caller holds mu.
func (ls *lanes) rouse(to destination, l *lane) {
	if !l.runs {
		l.runs = true
		ls.running.Go(func() { ls.run(to, l) })
		return
	}
	select {
	case l.signal <- struct{}{}:
	default:
	}
}

// run sends batches of a lane one after another. After the last one, it waits for linger, because
// a new goroutine for each call would cost more than the call.
func (ls *lanes) run(to destination, l *lane) {
	idle := time.NewTimer(linger)
	defer idle.Stop()
	for {
		runtime.Gosched() // lets more callers join the batch
		ctx, cancel := context.WithCancel(context.Background())
		if b := ls.next(l, cancel); b != nil {
			ls.send(ctx, to, l, b)
			cancel()
			continue
		}
		cancel()
		idle.Reset(linger)
		select {
		case <-l.signal:
			continue
		case <-idle.C:
		case <-ls.closing:
		}
		if ls.shut(to, l) {
			return
		}
	}
}

// next returns the next batch; nil if no call waits.
func (ls *lanes) next(l *lane, cancel context.CancelFunc) *batch {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l.waiting = slices.DeleteFunc(l.waiting, func(b *batch) bool { return b.callers == 0 })
	if len(l.waiting) == 0 {
		return nil
	}
	b := l.waiting[0]
	l.waiting = slices.Delete(l.waiting, 0, 1)
	ls.number++
	b.seal(ls.name, ls.number, cancel)
	b.request.Timeout = l.within(b.bytes, b.deadline)
	return b
}

// shut ends the sender unless a call waits for it. It also removes the lane if there are too many.
func (ls *lanes) shut(to destination, l *lane) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if len(l.waiting) > 0 {
		return false
	}
	l.runs = false
	if len(ls.open) > maxIdle {
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
