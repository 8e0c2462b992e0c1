package acceptance

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

var errHandler = errors.New("the handler has failed")

// route handles the topic's messages behind a stack of middlewares, the first outermost.
func route(s *fixture.Scene, config func(*subConfig), handler message.NoPublishHandlerFunc, stack ...message.HandlerMiddleware) {
	s.T.Helper()
	router := newRouter(s)
	router.AddConsumerHandler("h", s.Topic, s.Subscriber(config), handler).AddMiddleware(stack...)
	run(s, router)
}

func newRouter(s *fixture.Scene) *message.Router {
	s.T.Helper()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: fixture.Soon}, watermill.NopLogger{})
	require.NoError(s.T, err)
	return router
}

func run(s *fixture.Scene, router *message.Router) {
	s.T.Helper()
	running := make(chan error, 1)
	go func() { running <- router.Run(context.Background()) }()
	s.T.Cleanup(func() {
		require.NoError(s.T, router.Close())
		require.NoError(s.T, <-running)
	})
	fixture.Wait(s.T, router.Running(), "the router runs")
}

// poisonQueue returns the middleware and the topic that it publishes to.
func poisonQueue(s *fixture.Scene) (message.HandlerMiddleware, *fixture.Scene) {
	s.T.Helper()
	poisoned := s.Beside(".poison")
	poison, err := middleware.PoisonQueue(s.Publisher(), poisoned.Topic)
	require.NoError(s.T, err)
	return poison, poisoned
}

// untilCancelled is a handler that obeys its context.
func untilCancelled(calls *atomic.Int64) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		calls.Add(1)
		<-msg.Context().Done()
		return msg.Context().Err()
	}
}

// TestAPoisonQueueWorksAroundATimeout, which leaves its ended context on the message.
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
			s := fixture.New(t)
			poison, poisoned := poisonQueue(s)
			var calls atomic.Int64
			route(s, closeTimeout(fixture.Soon), test.handler(&calls), append([]message.HandlerMiddleware{poison}, test.inner...)...)
			s.Publish("a")
			poisoned.Expect(poisoned.Subscribe(), "a")
			s.Settled()
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

// TestProducedMessagesMayCarryTheHandlersContext publishes after Timeout has ended it.
func TestProducedMessagesMayCarryTheHandlersContext(t *testing.T) {
	s := fixture.New(t)
	out := s.Beside("-out")
	router := newRouter(s)
	router.AddHandler("h", s.Topic, s.Subscriber(closeTimeout(fixture.Soon)), out.Topic, s.Publisher(),
		func(msg *message.Message) ([]*message.Message, error) {
			out := message.NewMessage("out of "+msg.UUID, nil)
			out.SetContext(msg.Context())
			return []*message.Message{out}, nil
		}).AddMiddleware(middleware.Timeout(time.Minute))
	run(s, router)
	s.Publish("a")
	out.Expect(out.Subscribe(), "out of a")
	s.Settled()
}

// TestPublishRejectsTheContextOfAnEndedDelivery: the opposite case, because the lease is gone.
func TestPublishRejectsTheContextOfAnEndedDelivery(t *testing.T) {
	s := fixture.New(t)
	p := s.Publisher()
	messages := s.Subscribe()
	s.Publish("a")
	msg := s.Next(messages)
	ctx, cancel := context.WithCancel(msg.Context())
	cancel()
	msg.SetContext(ctx)
	msg.Ack()
	delivery, _ := redisdelay.DeliveryFromContext(ctx)
	require.NotEmpty(t, delivery.ID)
	s.Settled()
	require.ErrorIs(t, p.Publish(s.Topic, msg), context.Canceled)
	own := message.NewMessage("own", nil)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	own.SetContext(over)
	require.ErrorIs(t, p.Publish(s.Topic, own), context.Canceled)
}

// TestAPoisonQueueNeedsARecovererInside to receive the message of a panic.
func TestAPoisonQueueNeedsARecovererInside(t *testing.T) {
	s := fixture.New(t)
	poison, poisoned := poisonQueue(s)
	var calls atomic.Int64
	route(s, closeTimeout(fixture.Soon), panicking(&calls), poison, middleware.Recoverer)
	s.Publish("a")
	poisoned.Expect(poisoned.Subscribe(), "a")
	s.Settled()
	require.Equal(t, int64(1), calls.Load())

	s = fixture.New(t)
	poison, poisoned = poisonQueue(s)
	calls.Store(0)
	route(s, closeTimeout(fixture.Soon), panicking(&calls), middleware.Recoverer, poison)
	s.Publish("b")
	require.Eventually(t, func() bool { return calls.Load() >= 3 }, fixture.Soon, 5*time.Millisecond, "it is redelivered")
	assert.Empty(t, poisoned.Kinds(), "and not poisoned")
}
