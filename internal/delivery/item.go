package delivery

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// item is one claimed message.
type item struct {
	queue.Claimed
	partition *partition
	releasing *atomic.Int64 // the counter of its settler
	requested time.Time     // when its claim was sent
	size      int           // bytes of body and metadata
	expiresAt time.Time     // by Redis's clock, zero for never; owned by its worker
	took      time.Duration // how long a handler had the message; set before it is settled
	reason    string        // why it is buried without a nack; set before it is settled
	buried    bool          // owned by the settler; it is reported as a dead message

	// set before its settlement is reported
	how     observe.Settlement
	failure string        // the error of a nack
	retryIn time.Duration // until the message is due again

	// handedOut says that a handler has the message, so that the delivery counts.
	handedOut atomic.Bool
	// ended says that Redis already knows that the group is done with the message.
	ended atomic.Bool

	trustedUntil time.Time // guarded by leases.mu; when the lease stops being certain
	lost         bool      // guarded by leases.mu
	// extended is how often the lease was extended. Guarded by leases.mu.
	extended int
	// sent is how often its settlement was sent. Guarded by leases.mu.
	sent int
	// doubted says that a heartbeat found the delivery stale while its settlement was under way: the settlement may be
	// the reason. Guarded by leases.mu.
	doubted bool
	cancel  context.CancelCauseFunc // guarded by leases.mu; set when it is handed out
}

func (it *item) delivery() queue.Delivery { return queue.Delivery{ID: it.ID, Receipt: it.Receipt} }

// expired reports whether the message has expired, so that no handler gets it.
func (it *item) expired() bool {
	return !it.expiresAt.IsZero() && !it.redisClock(time.Now()).Before(it.expiresAt)
}

// expiry returns a channel that receives a value when the message expires; nil if it never does.
func (it *item) expiry() <-chan time.Time {
	if it.expiresAt.IsZero() {
		return nil
	}
	return time.After(it.expiresAt.Sub(it.redisClock(time.Now())))
}

// redisClock is Redis's clock at a time by this host's clock: its clock when it answered the claim, plus the time since then.
func (it *item) redisClock(now time.Time) time.Time {
	return it.AnsweredAt.Add(now.Sub(it.ArrivedAt))
}

// inChunks calls do with chunks of a list until a call fails, and returns the values from the failed chunk on.
func inChunks[T any](values []T, size int, do func([]T) error) (remaining []T, err error) {
	for len(values) > 0 {
		n := min(size, len(values))
		if err := do(values[:n]); err != nil {
			return values, err
		}
		values = values[n:]
	}
	return nil, nil
}

// mapped returns the result of a function for each value.
func mapped[T, U any](values []T, of func(T) U) []U {
	result := make([]U, len(values))
	for i, value := range values {
		result[i] = of(value)
	}
	return result
}
