// Package publish merges concurrent Publish calls into few script calls.
//
// While a batch for a topic partition is under way, calls for it gather; what
// has gathered goes out as the next batch. No call waits for company, and calls
// stay independent: each is stored whole or not at all and has its own result.
package publish

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

const (
	// MaxMessages is the most messages that go out in one batch. More would keep
	// Redis busy for over 10 ms and save nothing.
	MaxMessages = 500

	// patience is how long a call waits before it gets a timer of its own for its
	// deadline: to set one took a quarter of the client's time.
	patience = 200 * time.Millisecond

	// linger is how long a goroutine waits for more to send to its destination.
	linger = 100 * time.Millisecond

	// MaxBytes is about the most message text that goes out in one batch. A call
	// larger than that is a batch of its own.
	MaxBytes = 4 << 20
)

// Why a call fails, apart from what Redis says.
var (
	ErrClosed         = errors.New("redisdelay: publisher is closed")
	ErrDuplicate      = errors.New("the key is in use: a message with it waits or is being handled")
	ErrOutcomeUnknown = errors.New("outcome unknown: the messages may be stored")
)

// Destination is a topic partition.
type Destination struct {
	Topic     string
	Partition int
}

// Store stores a batch at a destination. See queue.Partition.Push.
type Store func(ctx context.Context, to Destination, b queue.Batch) (rejected []queue.Duplicate, err error)

// Batcher merges calls. It is safe for concurrent use.
type Batcher struct {
	// immutable
	store   Store
	request queue.Batch
	newName func() string
	outage  *Outage

	senders sync.WaitGroup // a goroutine for each lane in lanes
	closing chan struct{}  // closed by Close

	mu     sync.Mutex
	lanes  map[Destination]*lane // guarded by mu; only those used just now
	name   string                // guarded by mu; of the publisher
	number int64                 // guarded by mu; of the last batch, for all lanes
	closed bool                  // guarded by mu
}

// lane is the traffic to one destination, one batch at a time.
type lane struct {
	waiting []*batch      // guarded by Batcher.mu; calls join the last one
	signal  chan struct{} // there is something waiting
}

// call is one Publish call.
type call struct {
	messages []queue.Message
	bytes    int
	err      error // set before the batch is done
}

// batch is what one script call stores.
type batch struct {
	done chan struct{} // closed by the sender
	slow chan struct{} // closed when it is not done within patience
	wait *time.Timer   // closes slow

	// guarded by Batcher.mu
	calls           []*call // fixed once the batch is sent
	messages, bytes int
	publisher       string             // the name that it is sent under
	number          int64              // 0 until it is sent
	cancel          context.CancelFunc // set when it is sent
	callers         int                // that still wait for the outcome
	last            error              // of the last attempt
}

// fits tells whether there is room for a call.
func (b *batch) fits(c *call) bool {
	return b.messages+len(c.messages) <= MaxMessages && b.bytes+c.bytes <= MaxBytes
}

func newBatch() *batch {
	b := &batch{done: make(chan struct{}), slow: make(chan struct{})}
	b.wait = time.AfterFunc(patience, func() { close(b.slow) })
	return b
}

// New returns a Batcher whose batches are like request, with numbers and calls of their
// own. newName makes names for its publisher that nobody else uses.
func New(store Store, request queue.Batch, newName func() string, outage *Outage) *Batcher {
	return &Batcher{
		store: store, request: request, newName: newName, name: newName(), outage: outage,
		lanes: map[Destination]*lane{}, closing: make(chan struct{}),
	}
}

// Publish stores messages, MaxMessages at most, and returns when they are
// stored, certain to fail, ctx ends or the deadline has come. An error that is
// ErrOutcomeUnknown means that they may be stored; with any other they are not.
func (b *Batcher) Publish(ctx context.Context, deadline time.Time, to Destination, messages []queue.Message) error {
	if ctx.Err() != nil {
		return fmt.Errorf("not stored: %w", context.Cause(ctx))
	}
	left := time.Until(deadline)
	if left <= 0 {
		return fmt.Errorf("not stored: %w", context.DeadlineExceeded)
	}
	c := &call{messages: messages}
	for _, m := range messages {
		c.bytes += len(m.Body)
	}
	joined, err := b.join(to, c) //nolint:contextcheck // a batch outlives any one of its callers
	if err != nil {
		return err
	}
	if left > patience {
		select {
		case <-joined.done:
			return c.err
		case <-ctx.Done():
			return b.leave(joined, c, context.Cause(ctx))
		case <-joined.slow:
		}
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	select {
	case <-joined.done:
		return c.err
	case <-ctx.Done():
		return b.leave(joined, c, context.Cause(ctx))
	}
}

// join adds a call to a batch that is not sent yet.
func (b *Batcher) join(to Destination, c *call) (*batch, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, ErrClosed
	}
	l := b.lanes[to]
	if l == nil {
		l = &lane{signal: make(chan struct{}, 1)}
		b.lanes[to] = l
		b.senders.Go(func() { b.send(to, l) })
	}
	if n := len(l.waiting); n == 0 || !l.waiting[n-1].fits(c) {
		l.waiting = append(l.waiting, newBatch())
	}
	last := l.waiting[len(l.waiting)-1]
	last.calls = append(last.calls, c)
	last.callers++
	last.messages += len(c.messages)
	last.bytes += c.bytes
	select {
	case l.signal <- struct{}{}:
	default:
	}
	return last, nil
}

// leave ends a call whose caller does not wait any longer. A batch that nobody
// waits for is not sent, or not again.
func (b *Batcher) leave(joined *batch, c *call, cause error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-joined.done:
		return c.err
	default:
	}
	joined.callers--
	if joined.number == 0 {
		joined.calls = slices.DeleteFunc(joined.calls, func(other *call) bool { return other == c })
		joined.messages -= len(c.messages)
		joined.bytes -= c.bytes
		return fmt.Errorf("not stored: %w", cause)
	}
	if joined.callers == 0 {
		joined.cancel()
	}
	if joined.last != nil {
		return fmt.Errorf("%w: %w: %w", ErrOutcomeUnknown, cause, joined.last)
	}
	return fmt.Errorf("%w: %w", ErrOutcomeUnknown, cause)
}

// send sends a lane's batches one after another, until nothing has waited for a
// while: a new goroutine for each call would cost more than the call.
func (b *Batcher) send(to Destination, l *lane) {
	idle := time.NewTimer(linger)
	defer idle.Stop()
	for {
		runtime.Gosched() // callers that are about to join make a fuller batch
		ctx, cancel := context.WithCancel(context.Background())
		if next := b.take(l, cancel); next != nil {
			b.deliver(ctx, to, next)
			cancel()
			continue
		}
		cancel()
		idle.Reset(linger)
		select {
		case <-l.signal:
			continue
		case <-idle.C:
		case <-b.closing:
		}
		if b.drop(to, l) {
			return
		}
	}
}

// drop ends a lane unless a call waits.
func (b *Batcher) drop(to Destination, l *lane) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(l.waiting) > 0 {
		return false
	}
	delete(b.lanes, to)
	return true
}

// take returns the next batch to send; nil when no call waits.
func (b *Batcher) take(l *lane, cancel context.CancelFunc) *batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := slices.IndexFunc(l.waiting, func(waiting *batch) bool { return waiting.callers > 0 })
	if first < 0 {
		l.waiting = nil
		return nil
	}
	next := l.waiting[first]
	l.waiting = slices.Delete(l.waiting, 0, first+1)
	b.number++
	next.publisher, next.number, next.cancel = b.name, b.number, cancel
	return next
}

// Split cuts the messages of a call into what Publish takes at once.
func Split(messages []queue.Message) [][]queue.Message {
	var parts [][]queue.Message
	start, bytes := 0, 0
	for i, m := range messages {
		bytes += len(m.Body)
		if i > start && (i-start == MaxMessages || bytes > MaxBytes) {
			parts = append(parts, messages[start:i])
			start, bytes = i, len(m.Body)
		}
	}
	if start < len(messages) {
		parts = append(parts, messages[start:])
	}
	return parts
}

// Close waits until the calls under way have ended, or ctx has. Later calls fail
// with ErrClosed.
func (b *Batcher) Close(ctx context.Context) error {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.closing)
	}
	b.mu.Unlock()
	return await(ctx, &b.senders) // which Publish's callers bound
}
