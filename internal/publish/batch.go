package publish

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

const (
	// maxMessages is how many messages a batch may have. More would keep Redis busy for
	// over 10 ms and save nothing.
	maxMessages = 500

	// maxBytes is about how many bytes of messages a batch may have. A larger call is a
	// batch of its own.
	maxBytes = 4 << 20

	// patience is how long a caller waits before it gets a timer of its own for its deadline.
	// A timer for each call would take a quarter of the client's time.
	patience = 200 * time.Millisecond
)

// call is the part of a Publish or PublishAsync call in a batch.
type call struct {
	messages, bytes int
	keyed           bool             // a message has a key
	duplicates      queue.Duplicates // what to do with a message whose key is in use
	ignored         []string         // set before the batch is done: keys of duplicates that were dropped
	err             error            // set before the batch is done

	// of a PublishAsync call; guarded by lanes.mu
	future *Future // nil for a Publish call
	share  int     // of the future's, which it is a piece of
	batch  *batch  // that it is in; nil once the piece has ended
}

func newCall(messages []Message) call {
	c := call{messages: len(messages), duplicates: messages[0].Duplicates}
	for i := range messages {
		c.bytes += len(messages[i].Body)
		c.keyed = c.keyed || messages[i].Key != ""
	}
	return c
}

// batch is what one script call stores. Calls join it until it is sent.
type batch struct {
	done  chan struct{} // closed by finish
	slow  chan struct{} // closed if the batch is not done within patience
	timer *time.Timer   // closes slow

	// guarded by lanes.mu
	calls           []*call     // fixed once the batch is sent
	request         queue.Batch // its Calls are the messages of calls; fixed once it is sent
	messages, bytes int
	keyed           bool               // a message has a key
	publisher       string             // the publisher's name when it is sent
	cancel          context.CancelFunc // set when it is sent
	callers         int                // those that still wait for the outcome
	last            error              // of the last attempt
	async           bool               // a PublishAsync call has joined
	expiry          *time.Timer        // ends PublishAsync calls at their deadlines; nil without any
	expires         time.Time          // when that is next
}

// newBatch returns an empty batch. common is what it has in common with all others.
func newBatch(common queue.Batch) *batch {
	b := &batch{done: make(chan struct{}), slow: make(chan struct{}), request: common}
	b.timer = time.AfterFunc(patience, func() { close(b.slow) })
	return b
}

// fits reports whether a call can join.
func (b *batch) fits(c *call) bool {
	return b.request.Duplicates == c.duplicates && b.messages+c.messages <= maxMessages && b.bytes+c.bytes <= maxBytes
}

func (b *batch) add(c *call, messages []Message) {
	b.calls, b.request.Calls = append(b.calls, c), append(b.request.Calls, messages)
	b.request.Duplicates = c.duplicates
	b.callers++
	b.messages += c.messages
	b.bytes += c.bytes
	b.keyed = b.keyed || c.keyed
}

// wait waits until the batch is done. The error says why the caller stopped waiting.
func (b *batch) wait(ctx context.Context, deadline time.Time) error {
	if time.Until(deadline) > patience {
		select {
		case <-b.done:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-b.slow:
		}
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// abandon ends a call whose caller stops waiting, and returns its error. A batch without a
// waiting caller is not sent, or not sent again.
func (b *batch) abandon(c *call, cause error) error {
	b.callers--
	if b.request.Number == 0 { // it is not sent
		at := slices.Index(b.calls, c)
		b.calls = append(b.calls[:at], b.calls[at+1:]...)
		b.request.Calls = append(b.request.Calls[:at], b.request.Calls[at+1:]...)
		b.messages -= c.messages
		b.bytes -= c.bytes
		return fmt.Errorf("not stored: %w", cause)
	}
	if b.callers == 0 {
		b.cancel()
	}
	if b.last != nil {
		return fmt.Errorf("%w: %w: %w", ErrOutcomeUnknown, cause, b.last)
	}
	return fmt.Errorf("%w: %w", ErrOutcomeUnknown, cause)
}

// seal closes the batch to further calls, since a sender is about to send it.
func (b *batch) seal(publisher string, sender int, number int64, cancel context.CancelFunc) {
	b.publisher, b.cancel = publisher, cancel
	b.request.Publisher, b.request.Number, b.request.Repeatable = recordOf(publisher, sender), number, new(atomic.Bool)
}

// recordOf is the name of the record that a sender's batches are stored under.
func recordOf(publisher string, sender int) string {
	if sender == 0 {
		return publisher
	}
	return publisher + "/" + strconv.Itoa(sender)
}

// resolve sets the outcome of all calls: one error, except for those that were rejected because of a duplicate.
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
