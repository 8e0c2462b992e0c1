package acceptance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

// The recipes of docs/use/recipes.md, as the tests use them.

// recipe: an order for all of them
var errBadOrder = errors.New("the order is invalid")

func wholeStack(publisher message.Publisher) ([]message.HandlerMiddleware, error) {
	delayOnError := &middleware.DelayOnError{
		InitialInterval: 200 * time.Millisecond,
		MaxInterval:     time.Minute,
		Multiplier:      2, // a whole number: Watermill drops the fraction
	}
	poison, err := middleware.PoisonQueueWithFilter(publisher, "orders.poison", func(err error) bool {
		return errors.Is(err, errBadOrder)
	})
	if err != nil {
		return nil, err
	}
	breaker := middleware.NewCircuitBreaker(gobreaker.Settings{Timeout: 100 * time.Millisecond})
	retry := middleware.Retry{
		MaxRetries:          2,
		InitialInterval:     10 * time.Millisecond,
		ResetContextOnRetry: true, // otherwise a retry starts with the context that Timeout has ended
		ShouldRetry:         func(p middleware.RetryParams) bool { return !errors.Is(p.Err, errBadOrder) },
	}
	return []message.HandlerMiddleware{
		delayOnError.Middleware,
		poison,
		middleware.NewThrottle(1000, time.Second).Middleware,
		breaker.Middleware,
		retry.Middleware,
		middleware.Timeout(5 * time.Second),
		middleware.Recoverer,
	}, nil
}

// end of recipe

// deliveryKey differs for each delivery, so a Deduplicator drops none.
func deliveryKey(msg *message.Message) (string, error) {
	d, ok := redisdelay.DeliveryFromContext(msg.Context())
	if !ok {
		return "", errors.New("not delivered by redisdelay")
	}
	return fmt.Sprintf("%s/%d", d.ID, d.Token), nil
}

// recipe: a handler that publishes once
func onceOnly(client redis.UniversalClient) (*redisdelay.Publisher, error) {
	return redisdelay.NewPublisher(redisdelay.PublisherConfig{
		Client:              client,
		OnDuplicate:         redisdelay.IgnoreDuplicate,
		DeduplicationWindow: 24 * time.Hour, // longer than redeliveries may take
	}, nil)
}

func invoiceOrder(order *message.Message) ([]*message.Message, error) {
	d, ok := redisdelay.DeliveryFromContext(order.Context())
	if !ok {
		return nil, errors.New("not delivered by redisdelay")
	}
	invoice := message.NewMessage(watermill.NewUUID(), order.Payload)
	redisdelay.SetKey(invoice, d.StepKey("invoice"))
	return []*message.Message{invoice}, nil
}

// end of recipe

// recipe: errors that decide
var (
	errNotPaid = errors.New("the order is not paid yet")
	errNoOrder = errors.New("there is no such order")
)

func decide(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := next(msg)
		d, ok := redisdelay.DeliveryFromContext(msg.Context())
		switch {
		case !ok:
		case errors.Is(err, errNotPaid):
			err = errors.Join(err, d.Defer(delay.For(time.Minute)))
		case errors.Is(err, errNoOrder):
			err = errors.Join(err, d.Bury(err.Error()))
		}
		return produced, err
	}
}

// end of recipe

// tags is a repository of a Deduplicator that forgets nothing.
type tags struct {
	mu   sync.Mutex
	seen map[string]bool // guarded by mu
}

func (r *tags) IsDuplicate(_ context.Context, key string) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.seen[key]
	r.seen[key] = true
	return known, nil
}

func TestADeduplicatorNeedsAKeyForEachDelivery(t *testing.T) {
	for name, test := range map[string]struct {
		key   middleware.MessageHasher
		calls int64 // for a message that fails once, and another with the same payload
	}{
		"the default key":     {nil, 1},                                                                 // the failed message is lost
		"the UUID":            {func(msg *message.Message) (string, error) { return msg.UUID, nil }, 2}, // it is lost, too
		"a key of deliveries": {deliveryKey, 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := fixture.New(t)
			dedup := &middleware.Deduplicator{KeyFactory: test.key, Repository: &tags{seen: map[string]bool{}}, Timeout: time.Second}
			var calls atomic.Int64
			route(s, closeTimeout(fixture.Soon), func(*message.Message) error {
				if calls.Add(1) == 1 {
					return errHandler
				}
				return nil
			}, dedup.Middleware)
			p := s.Publisher()
			require.NoError(t, p.Publish(s.Topic, message.NewMessage("first", []byte("x"))))
			require.NoError(t, p.Publish(s.Topic, message.NewMessage("second", []byte("x"))))
			s.Settled()
			assert.Equal(t, test.calls, calls.Load())
		})
	}
}

// TestTheWholeMiddlewareStack handles messages of all kinds.
func TestTheWholeMiddlewareStack(t *testing.T) {
	t.Parallel() // it mostly waits
	s := fixture.New(t)
	s.Topic = "orders-" + watermill.NewShortUUID()
	stack, err := wholeStack(inTopic{s.Publisher(), s.Topic + ".poison"})
	require.NoError(t, err)
	var mu sync.Mutex
	calls, done := map[string]int{}, map[string]int{}
	handler := func(msg *message.Message) error {
		mu.Lock()
		defer mu.Unlock()
		calls[msg.UUID]++
		switch {
		case msg.Context().Err() != nil:
			return msg.Context().Err()
		case msg.UUID == "bad":
			return errBadOrder
		case msg.UUID == "panics" && calls[msg.UUID] < 3:
			panic(errHandler)
		case msg.UUID == "fails" && calls[msg.UUID] < 8: // in two deliveries and a retry
			return errHandler
		}
		done[msg.UUID]++
		return nil
	}
	route(s, func(c *subConfig) { c.MaxInFlight, c.CloseTimeout = 4, fixture.Soon }, handler, stack...)
	poisoned := s.Beside(".poison")
	s.Publish("good", "bad", "panics", "fails", "better")
	poisoned.Expect(poisoned.Subscribe(), "bad")
	s.Settled()
	mu.Lock()
	defer mu.Unlock()
	assert.Equal(t, map[string]int{"good": 1, "panics": 1, "fails": 1, "better": 1}, done)
	assert.Equal(t, 1, calls["bad"])
}

// inTopic publishes to a topic of the test's own.
type inTopic struct {
	message.Publisher
	topic string
}

func (p inTopic) Publish(_ string, messages ...*message.Message) error {
	return p.Publisher.Publish(p.topic, messages...)
}
