package publish

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

const (
	// maxMessages is how many messages a batch may have. More would keep Redis busy for
	// over 10 ms and save nothing.
	maxMessages = 500

	// maxBytes is about how many bytes of one call for a partition are stored whole or not at all. Such a call is a batch of its
	// own if it is larger than the window of its lane.
	maxBytes = 4 << 20

	// maxWindow is how many bytes several calls may have in a batch, however fast the connection is.
	maxWindow = 1 << 20

	// messageOverhead is about how many bytes are sent for a message besides its body.
	messageOverhead = 64

	// maxCuts is how often a call is sent alone if its connection is cut each time, while Redis answers other calls.
	maxCuts = 3

	// patience is how long a caller waits before it starts a timer for its deadline.
	// A timer for each call would take a quarter of the client's processor time.
	patience = 200 * time.Millisecond
)

// call is the part of a Publish or PublishAsync call in a batch.
type call struct {
	messages, bytes int
	duplicates      queue.Duplicates // what to do with a message whose key is in use
	deadline        time.Time
	ignored         []string // set before the batch is done: keys of duplicates that were dropped
	err             error    // set before the batch is done

	// guarded by lanes.mu
	batch  *batch  // nil after the caller of Publish has left, or after the piece of a PublishAsync call has ended
	future *Future // nil for a Publish call
	share  int     // index of the future's share that this is a piece of
}

func newCall(messages []Message, deadline time.Time) call {
	c := call{messages: len(messages), duplicates: messages[0].Duplicates, deadline: deadline}
	for i := range messages {
		c.bytes += len(messages[i].Body) + messageOverhead
	}
	return c
}

// batch is what one script call stores. Calls join it until it is sent. If it is not stored, and its calls are sent again, they
// move to other batches, its parts.
type batch struct {
	done  chan struct{} // closed by finish
	slow  chan struct{} // closed if the batch is not done within patience
	timer *time.Timer   // closes slow

	// guarded by lanes.mu
	calls           []*call     // fixed once the batch is sent
	request         queue.Batch // its Calls are the messages of calls; fixed once it is sent
	messages, bytes int
	deadline        time.Time          // the latest of its calls
	part            bool               // its calls were sent before, so no other call joins them
	moved           bool               // its calls are in its parts; fixed once it is done
	cancel          context.CancelFunc // set when it is sent
	callers         int                // how many still wait for the outcome
	last            error              // of the last attempt
	expiry          *time.Timer        // ends PublishAsync calls at their deadlines; nil without any
	expires         time.Time          // when expiry fires next

	// of a part with one call; owned by its sender
	cuts  int // how often a connection was cut while the call was sent alone
	pause backoff.Backoff
}

// newBatch returns an empty batch. common has the fields that are the same in all batches.
func newBatch(common queue.Batch) *batch {
	b := &batch{
		done: make(chan struct{}), slow: make(chan struct{}), request: common,
		pause: backoff.Backoff{Min: minBackoff, Max: maxBackoff},
	}
	b.timer = time.AfterFunc(patience, func() { close(b.slow) })
	return b
}

// fits reports whether a call can join without making the batch larger than size.
func (b *batch) fits(c *call, size int) bool {
	return b.request.Duplicates == c.duplicates && b.messages+c.messages <= maxMessages && b.bytes+c.bytes <= size
}

func (b *batch) add(c *call, messages []Message) {
	b.calls, b.request.Calls = append(b.calls, c), append(b.request.Calls, messages)
	b.request.Duplicates = c.duplicates
	c.batch = b
	b.callers++
	if c.deadline.After(b.deadline) {
		b.deadline = c.deadline
	}
	b.messages += c.messages
	b.bytes += c.bytes
}

// wait waits until the batch is done. The error says why the caller stopped waiting.
func (b *batch) wait(ctx context.Context, deadline time.Time) error {
	if time.Until(deadline) > patience {
		select {
		case <-b.done:
			return nil
		case <-ctx.Done():
			return script.EndOf(ctx)
		case <-b.slow:
		}
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
		return script.EndOf(ctx)
	}
}

// abandon ends a call whose caller stops waiting, and returns its error. A batch without a
// waiting caller is not sent, or not sent again.
func (b *batch) abandon(c *call, cause error) error {
	c.batch = nil
	b.callers--
	if b.callers == 0 && b.cancel != nil {
		b.cancel()
	}
	if b.request.Number == 0 { // it is not sent, or certainly not stored
		at := slices.Index(b.calls, c)
		b.calls = append(b.calls[:at], b.calls[at+1:]...)
		b.request.Calls = append(b.request.Calls[:at], b.request.Calls[at+1:]...)
		b.messages -= c.messages
		b.bytes -= c.bytes
		return fmt.Errorf("not stored: %w", cause)
	}
	if b.last != nil {
		return fmt.Errorf("%w: %w: %w", ErrOutcomeUnknown, cause, b.last)
	}
	return fmt.Errorf("%w: %w", ErrOutcomeUnknown, cause)
}

// seal closes the batch to further calls before it is sent.
func (b *batch) seal(publisher string, number int64, cancel context.CancelFunc) {
	b.cancel = cancel
	b.request.Publisher, b.request.Number, b.request.Repeatable = publisher, number, new(atomic.Bool)
}

// unseal records that the batch was sent but is not stored.
func (b *batch) unseal() { b.request.Number = 0 }

// split returns parts for the calls whose callers still wait. Each part has up to size bytes and up to half of the batch, but
// at least one call.
func (b *batch) split(common queue.Batch, size int) (parts []*batch) {
	size = min(size, b.bytes/2)
	for i, c := range b.calls {
		if c.batch == nil {
			continue
		}
		if n := len(parts); n == 0 || !parts[n-1].fits(c, size) {
			parts = append(parts, newBatch(common))
			parts[n].part = true
		}
		parts[len(parts)-1].add(c, b.request.Calls[i])
	}
	if len(b.calls) == 1 && len(parts) == 1 {
		parts[0].cuts, parts[0].pause = b.cuts, b.pause
	}
	b.moved = true
	return parts
}

// resolve sets the outcome of all calls: the same error, except for calls that were rejected because of a duplicate.
func (b *batch) resolve(duplicates []queue.Duplicate, err error) {
	for _, c := range b.calls {
		c.err = err
	}
	for _, d := range duplicates {
		c, message := b.calls[d.Call], &b.request.Calls[d.Call][d.Message]
		if c.duplicates == queue.IgnoreDuplicates {
			c.ignored = append(c.ignored, message.Key)
			continue
		}
		c.err = fmt.Errorf("message %q: %w: %q", message.Name, ErrDuplicate, message.Key)
	}
}

// finish wakes the callers.
func (b *batch) finish() {
	b.timer.Stop()
	if b.expiry != nil {
		b.expiry.Stop()
	}
	close(b.done)
}

func (b *batch) finished() bool {
	select {
	case <-b.done:
		return true
	default:
		return false
	}
}
