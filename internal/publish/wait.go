package publish

import (
	"context"
	"fmt"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// patience is how long a caller waits before it gets a timer of its own for its deadline.
// A timer for each call would take a quarter of the client's time.
const patience = 200 * time.Millisecond

// store stores messages in one batch. It returns when they are stored, when they certainly
// cannot be, when ctx ends or at the deadline. With ErrOutcomeUnknown they may be stored;
// with any other error they are not.
func (ls *lanes) store(ctx context.Context, deadline time.Time, to destination, messages []queue.Message) error {
	if ctx.Err() != nil {
		return fmt.Errorf("not stored: %w", context.Cause(ctx))
	}
	if !time.Now().Before(deadline) {
		return fmt.Errorf("not stored: %w", context.DeadlineExceeded)
	}
	c := newCall(messages)
	b := ls.join(to, c) //nolint:contextcheck // a batch outlives any one of its callers
	if cause := b.wait(ctx, deadline); cause != nil {
		return ls.leave(b, c, cause)
	}
	return c.err
}

// leave ends a call whose caller stops waiting, unless the batch is done.
func (ls *lanes) leave(b *batch, c *call, cause error) error {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if b.finished() {
		return c.err
	}
	return b.leave(c, cause)
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
