package publish

import (
	"context"
	"fmt"
	"slices"
	"strconv"
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
)

// call is what one Publish call adds to a batch.
type call struct {
	messages []queue.Message
	bytes    int
	keyed    bool  // a message has a key
	err      error // set before the batch is done
}

func newCall(messages []queue.Message) *call {
	c := &call{messages: messages}
	for _, m := range messages {
		c.bytes += len(m.Body)
		c.keyed = c.keyed || m.Key != ""
	}
	return c
}

// batch is what one script call stores. Calls join it until it is sent.
type batch struct {
	done  chan struct{} // closed by finish
	slow  chan struct{} // closed if the batch is not done within patience
	timer *time.Timer   // closes slow

	// guarded by lanes.mu
	calls           []*call // fixed once the batch is sent
	messages, bytes int
	keyed           bool               // a message has a key
	publisher       string             // the publisher's name when it is sent
	sender          int                // which sender of the lane sends it
	number          int64              // 0 until it is sent
	cancel          context.CancelFunc // set when it is sent
	callers         int                // those that still wait for the outcome
	last            error              // of the last attempt
}

func newBatch() *batch {
	b := &batch{done: make(chan struct{}), slow: make(chan struct{})}
	b.timer = time.AfterFunc(patience, func() { close(b.slow) })
	return b
}

// fits reports whether a call can join.
func (b *batch) fits(c *call) bool {
	return b.messages+len(c.messages) <= maxMessages && b.bytes+c.bytes <= maxBytes
}

func (b *batch) add(c *call) {
	b.calls = append(b.calls, c)
	b.callers++
	b.messages += len(c.messages)
	b.bytes += c.bytes
	b.keyed = b.keyed || c.keyed
}

// leave ends a call whose caller stops waiting, and returns its error. A batch without a
// waiting caller is not sent, or not sent again.
func (b *batch) leave(c *call, cause error) error {
	b.callers--
	if b.number == 0 {
		b.calls = slices.DeleteFunc(b.calls, func(other *call) bool { return other == c })
		b.messages -= len(c.messages)
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

// seal closes the batch to further calls, since it is about to be sent.
func (b *batch) seal(publisher string, sender int, number int64, cancel context.CancelFunc) {
	b.publisher, b.sender, b.number, b.cancel = publisher, sender, number, cancel
}

// record is the name of the publisher's record that the batch is stored under.
func (b *batch) record() string {
	if b.sender == 0 {
		return b.publisher
	}
	return b.publisher + "/" + strconv.Itoa(b.sender)
}

// resolve sets one error for all calls except the rejected ones.
func (b *batch) resolve(rejected []queue.Duplicate, err error) {
	for _, c := range b.calls {
		c.err = err
	}
	for _, d := range rejected {
		message := b.calls[d.Call].messages[d.Message]
		b.calls[d.Call].err = fmt.Errorf("message %q: %w: %q", message.Name, ErrDuplicate, message.Key)
	}
}

// finish wakes the callers.
func (b *batch) finish() {
	b.timer.Stop()
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
