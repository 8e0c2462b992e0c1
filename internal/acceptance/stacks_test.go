package acceptance

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/sony/gobreaker"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

var errHandler = errors.New("the handler has failed")

// route handles the topic's messages behind a stack of middlewares, the first outermost.
func (b *bench) route(config func(*subConfig), handler message.NoPublishHandlerFunc, stack ...message.HandlerMiddleware) {
	b.t.Helper()
	router := b.newRouter()
	router.AddConsumerHandler("h", b.topic, b.subscriber(config), handler).AddMiddleware(stack...)
	b.run(router)
}

func (b *bench) newRouter() *message.Router {
	b.t.Helper()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: soon}, watermill.NopLogger{})
	require.NoError(b.t, err)
	return router
}

func (b *bench) run(router *message.Router) {
	b.t.Helper()
	running := make(chan error, 1)
	go func() { running <- router.Run(context.Background()) }()
	b.t.Cleanup(func() {
		require.NoError(b.t, router.Close())
		require.NoError(b.t, <-running)
	})
	<-router.Running()
}

// poisonQueue returns the middleware and the topic that it publishes to.
func (b *bench) poisonQueue() (message.HandlerMiddleware, *bench) {
	b.t.Helper()
	poisoned := *b
	poisoned.topic += ".poison"
	poison, err := middleware.PoisonQueue(b.publisher(), poisoned.topic)
	require.NoError(b.t, err)
	return poison, &poisoned
}

// untilCancelled is a handler that obeys its context.
func untilCancelled(calls *atomic.Int64) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		calls.Add(1)
		<-msg.Context().Done()
		return msg.Context().Err()
	}
}

// TestAPoisonQueueWorksAroundATimeout: Timeout leaves its ended context on the message.
func TestAPoisonQueueWorksAroundATimeout(t *testing.T) {
	short := middleware.Timeout(50 * time.Millisecond)
	for name, test := range map[string]struct {
		inner   []message.HandlerMiddleware
		handler func(calls *atomic.Int64) message.NoPublishHandlerFunc
	}{
		"it runs out":     {[]message.HandlerMiddleware{short}, untilCancelled},
		"with a recovery": {[]message.HandlerMiddleware{short, middleware.Recoverer}, panicking},
		"a handler fails": {[]message.HandlerMiddleware{short}, failing},
		"around retries": {[]message.HandlerMiddleware{
			short, middleware.Retry{MaxRetries: 50, InitialInterval: 20 * time.Millisecond}.Middleware,
		}, failing},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			poison, poisoned := b.poisonQueue()
			var calls atomic.Int64
			b.route(closeTimeout(soon), test.handler(&calls), append([]message.HandlerMiddleware{poison}, test.inner...)...)
			b.publish("a")
			poisoned.expect(poisoned.subscribe(), "a")
			b.settled()
			if name != "around retries" {
				assert.Equal(t, int64(1), calls.Load())
			}
		})
	}
}

func panicking(calls *atomic.Int64) message.NoPublishHandlerFunc {
	return func(*message.Message) error {
		calls.Add(1)
		panic(errHandler)
	}
}

func failing(calls *atomic.Int64) message.NoPublishHandlerFunc {
	return func(*message.Message) error {
		calls.Add(1)
		return errHandler
	}
}

// TestProducedMessagesMayCarryTheContextOfTheHandler publishes after Timeout has ended it.
func TestProducedMessagesMayCarryTheContextOfTheHandler(t *testing.T) {
	b := newBench(t)
	router := b.newRouter()
	router.AddHandler("h", b.topic, b.subscriber(closeTimeout(soon)), b.topic+"-out", b.publisher(),
		func(msg *message.Message) ([]*message.Message, error) {
			out := message.NewMessage("out of "+msg.UUID, nil)
			out.SetContext(msg.Context())
			return []*message.Message{out}, nil
		}).AddMiddleware(middleware.Timeout(time.Minute))
	b.run(router)
	b.publish("a")
	out := *b
	out.topic += "-out"
	out.expect(out.subscribe(), "out of a")
	b.settled()
}

// TestAContextThatEndedWithItsDeliveryIsObeyed is the other side: the lease is gone.
func TestAContextThatEndedWithItsDeliveryIsObeyed(t *testing.T) {
	b := newBench(t)
	p := b.publisher()
	messages := b.subscribe()
	b.publish("a")
	msg := b.next(messages)
	ctx, cancel := context.WithCancel(msg.Context())
	cancel()
	msg.SetContext(ctx)
	msg.Ack()
	delivery, _ := redisdelay.DeliveryFromContext(ctx)
	require.NotEmpty(t, delivery.ID)
	b.settled()
	require.ErrorIs(t, p.Publish(b.topic, msg), context.Canceled)
	own := message.NewMessage("own", nil)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	own.SetContext(over)
	require.ErrorIs(t, p.Publish(b.topic, own), context.Canceled)
}

func TestRetriesAroundATimeoutNeedTheirContextBack(t *testing.T) {
	for reset, want := range map[bool][]error{
		true:  {nil, nil, nil},
		false: {nil, context.Canceled, context.Canceled},
	} {
		b := newBench(t)
		var mu sync.Mutex
		var begun []error // the error of the context at the beginning of each attempt
		b.route(closeTimeout(soon), func(msg *message.Message) error {
			mu.Lock()
			defer mu.Unlock()
			begun = append(begun, msg.Context().Err())
			if len(begun) < 3 {
				return errHandler
			}
			return nil
		},
			middleware.Retry{MaxRetries: 5, InitialInterval: time.Millisecond, ResetContextOnRetry: reset}.Middleware,
			middleware.Timeout(time.Minute),
		)
		b.publish("a")
		require.Eventually(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(begun) == 3
		}, soon, 5*time.Millisecond)
		b.settled()
		assert.Equal(t, want, begun, "ResetContextOnRetry: %t", reset)
	}
}

// TestAPanicReachesThePoisonQueueOnlyThroughARecovererInside shows the order of the two.
func TestAPanicReachesThePoisonQueueOnlyThroughARecovererInside(t *testing.T) {
	b := newBench(t)
	poison, poisoned := b.poisonQueue()
	var calls atomic.Int64
	b.route(closeTimeout(soon), panicking(&calls), poison, middleware.Recoverer)
	b.publish("a")
	poisoned.expect(poisoned.subscribe(), "a")
	b.settled()
	require.Equal(t, int64(1), calls.Load())

	b = newBench(t)
	poison, poisoned = b.poisonQueue()
	calls.Store(0)
	b.route(closeTimeout(soon), panicking(&calls), middleware.Recoverer, poison)
	b.publish("b")
	require.Eventually(t, func() bool { return calls.Load() >= 3 }, soon, 5*time.Millisecond, "it is redelivered")
	assert.Empty(t, poisoned.keys(), "and not poisoned")
}

func TestAPoisonQueueAroundDelayOnErrorPoisonsLater(t *testing.T) {
	b := newBench(t)
	poison, poisoned := b.poisonQueue()
	delayOnError := &middleware.DelayOnError{InitialInterval: 400 * time.Millisecond, MaxInterval: time.Minute, Multiplier: 2}
	var calls atomic.Int64
	b.route(closeTimeout(soon), failing(&calls), poison, delayOnError.Middleware)
	messages := poisoned.subscribe()
	start := b.redisTime()
	b.publish("a")
	msg := poisoned.next(messages)
	assert.False(t, dueAt(t, msg).Before(start.Add(400*time.Millisecond)), "with the delay that the middleware made")
	msg.Ack()
	b.settled()
}

func TestABreakerThatIsOpenDelaysMessages(t *testing.T) {
	b := newBench(t)
	delayOnError := &middleware.DelayOnError{InitialInterval: 200 * time.Millisecond, MaxInterval: time.Minute, Multiplier: 1}
	breaker := middleware.NewCircuitBreaker(gobreaker.Settings{
		Timeout:     300 * time.Millisecond,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= 2 },
	})
	var calls atomic.Int64
	b.route(closeTimeout(soon), func(*message.Message) error {
		if calls.Add(1) <= 3 {
			return errHandler
		}
		return nil
	}, delayOnError.Middleware, breaker.Middleware)
	b.publish("a", "b", "c")
	require.Eventually(t, func() bool { return calls.Load() >= 6 }, soon, 5*time.Millisecond)
	b.settled()
	assert.Equal(t, int64(6), calls.Load(), "three failures, and each message once")
}

// TestAThrottleKeepsItsMessages has them wait for their turn for longer than a lease.
func TestAThrottleKeepsItsMessages(t *testing.T) {
	b := newBench(t)
	var mu sync.Mutex
	attempts := map[string]int{}
	b.route(func(c *subConfig) { c.LeaseDuration, c.MaxInFlight, c.CloseTimeout = time.Second, 20, soon },
		func(msg *message.Message) error {
			mu.Lock()
			defer mu.Unlock()
			attempts[msg.UUID] += attempt(t, msg)
			return nil
		}, middleware.NewThrottle(1, 150*time.Millisecond).Middleware)
	uuids := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"}
	b.publish(uuids...)
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(attempts) == len(uuids)
	}, 2*soon, 5*time.Millisecond)
	b.settled()
	for uuid, n := range attempts {
		assert.Equal(t, 1, n, uuid)
	}
}

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

func TestADeduplicatorDropsWhatWasNackedUnlessItsKeyNamesTheDelivery(t *testing.T) {
	for name, test := range map[string]struct {
		key   middleware.MessageHasher
		calls int64 // for a message that fails once, and another with the same payload
	}{
		"the default key":      {nil, 1}, // the message that failed is lost
		"a key of deliveries":  {deliveryKey, 3},
		"a key of the payload": {payloadKey, 2},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			dedup := &middleware.Deduplicator{KeyFactory: test.key, Repository: &tags{seen: map[string]bool{}}, Timeout: time.Second}
			var calls atomic.Int64
			b.route(closeTimeout(soon), func(*message.Message) error {
				if calls.Add(1) == 1 {
					return errHandler
				}
				return nil
			}, dedup.Middleware)
			p := b.publisher()
			require.NoError(t, p.Publish(b.topic, message.NewMessage("first", []byte("x"))))
			require.NoError(t, p.Publish(b.topic, message.NewMessage("second", []byte("x"))))
			b.settled()
			assert.Equal(t, test.calls, calls.Load())
		})
	}
}

// TestTheWholeStack has messages of all kinds.
func TestTheWholeStack(t *testing.T) {
	b := newBench(t)
	b.topic = "orders-" + watermill.NewShortUUID()
	stack, err := wholeStack(inTopic{b.publisher(), b.topic + ".poison"})
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
	b.route(func(c *subConfig) { c.MaxInFlight, c.CloseTimeout = 4, soon }, handler, stack...)
	poisoned := *b
	poisoned.topic += ".poison"
	b.publish("good", "bad", "panics", "fails", "better")
	poisoned.expect(poisoned.subscribe(), "bad")
	b.settled()
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
