package publish

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// PublishAsync begins to store messages, as Publish does, and returns before they are stored. It
// waits while there is no room for them, and while it asks Redis about an unknown topic: at most
// until the deadline, the end of ctx or Close. It calls stop when the call has ended.
//
// Calls of one goroutine for one partition are stored in their order, also after its Publish calls
// and before its later ones.
func (p *Publisher) PublishAsync(ctx context.Context, stop func(), deadline time.Time, topic string, messages []Message) *Future {
	f := &Future{pending: p.lanes.pending, topic: topic, start: time.Now(), deadline: deadline, messages: len(messages), stop: stop}
	switch {
	case p.closed.Load():
		p.lanes.pending.refuse(f, ErrClosed)
		return f
	case len(messages) == 0:
		p.lanes.pending.refuse(f, nil)
		return f
	}
	for i := range messages {
		f.bytes += len(messages[i].Body)
	}
	if err := p.begin(ctx, f, messages); err != nil {
		p.lanes.pending.refuse(f, publishError(topic, err))
		if p.observer.Published != nil {
			p.observer.Published(f.event())
		}
	}
	return f
}

// begin adds the messages of a call to batches: all of them or, with an error, none.
func (p *Publisher) begin(ctx context.Context, f *Future, messages []Message) error {
	partitions, err := p.topics.partitions(ctx, f.deadline, f.topic)
	if err != nil {
		return fmt.Errorf("not stored: %w", err)
	}
	if err := p.lanes.pending.enter(ctx, f); err != nil {
		return fmt.Errorf("not stored: %w", err)
	}
	p.assignIDs(messages)
	if err := p.lanes.begin(); err != nil {
		p.lanes.pending.leave(f)
		return err
	}
	if err := p.lanes.enqueue(ctx, f, p.distribute(messages, partitions)); err != nil {
		p.lanes.pending.leave(f)
		p.lanes.end()
		return err
	}
	return nil
}

// enqueue adds a call to batches. It holds the lock throughout, so all of the call comes before the next one.
func (ls *lanes) enqueue(ctx context.Context, f *Future, shares []share) error {
	if err := checkDeadline(ctx, f.deadline); err != nil {
		return err
	}
	f.shares, f.results, f.pieces = shares, f.oneResult[:], f.onePiece[:0]
	if len(shares) > 1 {
		f.results = make([]result, len(shares))
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for i, s := range shares {
		to := destination{topic: f.topic, partition: s.partition}
		for _, messages := range split(s.messages) {
			c := f.add(i, messages)
			ls.endAt(ls.add(to, c, messages), f.deadline) //nolint:contextcheck // a batch outlives any one of its callers
		}
	}
	if ctx.Done() != nil {
		ended, stop := context.AfterFunc(ctx, func() { ls.giveUp(f, script.EndOf(ctx)) }), f.stop
		f.stop = func() {
			ended()
			stop()
		}
	}
	return nil
}

// endAt makes a batch check its calls at this deadline or earlier. One timer serves all
// calls of the batch. The caller holds mu.
func (ls *lanes) endAt(b *batch, deadline time.Time) {
	switch {
	case b.expiry == nil:
		b.expiry = time.AfterFunc(time.Until(deadline), func() { ls.expire(b) })
	case deadline.Before(b.expires):
		b.expiry.Reset(time.Until(deadline))
	default:
		return
	}
	b.expires = deadline
}

// expire ends the calls of a batch whose deadlines have passed.
func (ls *lanes) expire(b *batch) {
	ls.mu.Lock()
	var ended []*Future
	var next *Future
	now := time.Now()
	for _, c := range slices.Clone(b.calls) { // giveUp removes calls from it
		switch {
		case c.batch == nil || c.future == nil:
		case !c.future.deadline.After(now):
			c.future.giveUp(context.DeadlineExceeded)
			ended = append(ended, c.future)
		case next == nil || c.future.deadline.Before(next.deadline):
			next = c.future
		}
	}
	if next != nil {
		b.expires = next.deadline
		b.expiry.Reset(time.Until(b.expires))
	} else {
		b.expiry = nil // other calls may join the batch while its sender is busy
	}
	ls.mu.Unlock()
	ls.pending.finishAll(ended)
}

// giveUp ends a call whose context has ended, unless the call has ended before.
func (ls *lanes) giveUp(f *Future, cause error) {
	ls.mu.Lock()
	ended := f.giveUp(cause)
	ls.mu.Unlock()
	if ended {
		ls.pending.finishAll([]*Future{f})
	}
}

// endPieces ends the pieces in a batch that is done, and returns the calls that have ended with
// them. The caller holds lanes.mu.
func (b *batch) endPieces() (ended []*Future) {
	for _, c := range b.calls {
		if c.batch == nil || c.future == nil {
			continue
		}
		if c.future.end(c, c.err); c.future.left == 0 {
			ended = append(ended, c.future)
		}
	}
	return ended
}
