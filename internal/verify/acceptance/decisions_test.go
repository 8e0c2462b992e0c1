package acceptance

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture/dead"
)

// strict would redeliver what fails after an hour, if it did not bury it at once.
func strict(c *subConfig) {
	c.MaxDeliveries, c.NackDelay, c.CloseTimeout = 1, func(int) time.Duration { return time.Hour }, fixture.Soon
}

// deferring is a handler that puts its message off three times.
func deferring(t *testing.T, calls *atomic.Int64) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		d := fixture.Delivery(t, msg)
		assert.Equal(t, 1, d.Attempt)
		if calls.Add(1) > 3 {
			return nil
		}
		return errors.Join(errNotPaid, d.Defer(delay.For(30*time.Millisecond)))
	}
}

// burying is a handler that gives up its message.
func burying(t *testing.T, calls *atomic.Int64) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		calls.Add(1)
		assert.NoError(t, fixture.Delivery(t, msg).Bury("no such order"))
		return errNoOrder
	}
}

// decides tells whether an error is one that a handler has decided about.
func decides(err error) bool { return errors.Is(err, errNotPaid) || errors.Is(err, errNoOrder) }

// TestAHandlerDecidesByReturningAnError behind the middlewares that act on errors, too.
func TestAHandlerDecidesByReturningAnError(t *testing.T) {
	t.Parallel() // it mostly waits
	retry := middleware.Retry{MaxRetries: 5, InitialInterval: time.Millisecond}
	choosy := retry
	choosy.ShouldRetry = func(p middleware.RetryParams) bool { return !decides(p.Err) }
	delayOnError := &middleware.DelayOnError{InitialInterval: time.Hour, MaxInterval: time.Hour, Multiplier: 2}
	stacks := map[string]func(s *fixture.Scene) []message.HandlerMiddleware{
		"DelayOnError": func(*fixture.Scene) []message.HandlerMiddleware {
			return []message.HandlerMiddleware{delayOnError.Middleware}
		},
		"all of them": func(s *fixture.Scene) []message.HandlerMiddleware {
			poison, err := middleware.PoisonQueueWithFilter(s.Publisher(), s.Topic+".poison", func(err error) bool { return !decides(err) })
			require.NoError(t, err)
			return []message.HandlerMiddleware{
				delayOnError.Middleware, poison, choosy.Middleware, middleware.Timeout(time.Minute), middleware.Recoverer,
			}
		},
	}
	for name, stack := range stacks {
		t.Run(name, func(t *testing.T) {
			s := fixture.New(t)
			var calls atomic.Int64
			route(s, strict, deferring(t, &calls), stack(s)...)
			s.Publish("a")
			s.Settled()
			assert.Equal(t, int64(4), calls.Load())

			buried := s.Beside("-buried")
			calls.Store(0)
			route(buried, closeTimeout(fixture.Soon), burying(t, &calls), stack(buried)...)
			buried.Publish("b")
			entry := dead.Messages(buried, 1)[0]
			assert.Equal(t, "no such order", entry.Reason)
			assert.Equal(t, "b", entry.Content.Message.UUID)
			assert.Equal(t, int64(1), calls.Load())
		})
	}
}

// TestTheRecipeForDecisionErrorsWorks outermost, with the whole stack inside.
func TestTheRecipeForDecisionErrorsWorks(t *testing.T) {
	s := fixture.New(t)
	stack, err := wholeStack(inTopic{s.Publisher(), s.Topic + ".poison"})
	require.NoError(t, err)
	route(s, closeTimeout(fixture.Soon), func(msg *message.Message) error {
		if msg.UUID == "unpaid" {
			return errNotPaid
		}
		return fmt.Errorf("close %s: %w", msg.UUID, errNoOrder)
	}, append([]message.HandlerMiddleware{decide}, stack...)...)
	s.Publish("unknown", "unpaid")
	assert.Equal(t, "close unknown: there is no such order", dead.Messages(s, 1)[0].Reason)
	queue := s.Key("queue:default")
	require.Eventually(t, func() bool { return s.Client.ZCard(t.Context(), queue).Val() == 1 }, fixture.Soon, 5*time.Millisecond)
	waiting := s.Client.ZRangeWithScores(t.Context(), queue, 0, 0).Val()[0]
	assert.WithinDuration(t, s.Now().Add(time.Minute), time.UnixMilli(int64(waiting.Score)), 5*time.Second)
	assert.Equal(t, "1/0/0", s.Client.HGet(t.Context(), s.Key("attempts:default"), waiting.Member.(string)).Val(), "no delivery")
}
