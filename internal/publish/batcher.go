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
	"slices"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

const (
	// MaxMessages is the most messages that go out in one batch. More would keep
	// Redis busy for over 10 ms and save nothing.
	MaxMessages = 500

	// linger is how long a goroutine waits for more to send to its destination.
	linger = 100 * time.Millisecond

	// MaxBytes is about the most message text that goes out in one batch. A call
	// larger than that is a batch of its own.
	MaxBytes = 4 << 20
)

// Why a call fails, apart from what Redis says.
var (
	ErrClosed         = errors.New("redisdelay: publisher is closed")
	ErrDuplicate      = errors.New("a message with the same key is waiting already")
	ErrOutcomeUnknown = errors.New("outcome unknown: the messages may be stored")
)

// Destination is a topic partition.
type Destination struct {
	Topic     string
	Partition int
}

// Store stores a batch at a destination. See queue.Queue.Push.
type Store func(ctx context.Context, to Destination, b queue.Batch) (refused []int, err error)

// Batcher merges calls. It is safe for concurrent use.
type Batcher struct {
	// immutable
	store   Store
	request queue.Batch

	senders sync.WaitGroup // a goroutine for each lane in lanes
	closing chan struct{}  // closed by Close

	mu     sync.Mutex
	lanes  map[Destination]*lane // guarded by mu; only those used just now
	number int64                 // guarded by mu; of the last batch, for all lanes
	closed bool                  // guarded by mu
}

// lane is the traffic to one destination, one batch at a time.
type lane struct {
	waiting []*call       // guarded by Batcher.mu; not in a batch yet
	signal  chan struct{} // there is something waiting
}

// call is one Publish call.
type call struct {
	messages []queue.Message
	bytes    int
	done     chan struct{} // closed by the sender once err is set
	err      error
	batch    *batch // guarded by Batcher.mu; nil while the call waits
}

// batch is what one script call stores.
type batch struct {
	number  int64
	calls   []*call
	cancel  context.CancelFunc
	callers int   // guarded by Batcher.mu; those that still wait for the outcome
	last    error // guarded by Batcher.mu; of the last attempt
}

// New returns a Batcher whose batches are like request, with a number and calls of
// their own.
func New(store Store, request queue.Batch) *Batcher {
	return &Batcher{store: store, request: request, lanes: map[Destination]*lane{}, closing: make(chan struct{})}
}

// Publish stores messages, MaxMessages at most, and returns when they are
// stored, certain to fail, or ctx ends. An error that is ErrOutcomeUnknown means
// that they may be stored; with any other they are not.
func (b *Batcher) Publish(ctx context.Context, to Destination, messages []queue.Message) error {
	if ctx.Err() != nil {
		return fmt.Errorf("not stored: %w", context.Cause(ctx))
	}
	c := &call{messages: messages, done: make(chan struct{})}
	for _, m := range messages {
		c.bytes += len(m.Body)
	}
	if err := b.enqueue(to, c); err != nil { //nolint:contextcheck // a batch outlives any one of its callers
		return err
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return b.leave(to, c, context.Cause(ctx))
	}
}

func (b *Batcher) enqueue(to Destination, c *call) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return ErrClosed
	}
	l := b.lanes[to]
	if l == nil {
		l = &lane{signal: make(chan struct{}, 1)}
		b.lanes[to] = l
		b.senders.Go(func() { b.send(to, l) })
	}
	l.waiting = append(l.waiting, c)
	select {
	case l.signal <- struct{}{}:
	default:
	}
	return nil
}

// leave ends a call whose caller does not wait any longer. A batch that nobody
// waits for is not sent again.
func (b *Batcher) leave(to Destination, c *call, cause error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-c.done:
		return c.err
	default:
	}
	if c.batch == nil {
		l := b.lanes[to]
		l.waiting = slices.DeleteFunc(l.waiting, func(other *call) bool { return other == c })
		return fmt.Errorf("not stored: %w", cause)
	}
	c.batch.callers--
	if c.batch.callers == 0 {
		c.batch.cancel()
	}
	if c.batch.last != nil {
		return fmt.Errorf("%w: %w: %w", ErrOutcomeUnknown, cause, c.batch.last)
	}
	return fmt.Errorf("%w: %w", ErrOutcomeUnknown, cause)
}

// send sends a lane's batches one after another, until nothing has waited for a
// while: a new goroutine for each call would cost more than the call.
func (b *Batcher) send(to Destination, l *lane) {
	idle := time.NewTimer(linger)
	defer idle.Stop()
	for {
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

// take makes a batch of the calls that wait; nil when none does.
func (b *Batcher) take(l *lane, cancel context.CancelFunc) *batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(l.waiting) == 0 {
		return nil
	}
	n := fitting(l.waiting)
	b.number++
	next := &batch{number: b.number, calls: slices.Clone(l.waiting[:n]), cancel: cancel, callers: n}
	for _, c := range next.calls {
		c.batch = next
	}
	l.waiting = slices.Delete(l.waiting, 0, n)
	return next
}

// fitting is how many of the calls, at least one, go into one batch.
func fitting(calls []*call) int {
	messages, bytes := 0, 0
	for i, c := range calls {
		messages += len(c.messages)
		bytes += c.bytes
		if i > 0 && (messages > MaxMessages || bytes > MaxBytes) {
			return i
		}
	}
	return len(calls)
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
	idle := make(chan struct{})
	go func() { // ends with the last sender, which Publish's callers bound
		b.senders.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
