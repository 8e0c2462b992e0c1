package acceptance

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// The code of docs/use/basics.md, as the test uses it.

// recipe: publish with a delay
type shop struct {
	client     redis.UniversalClient
	publisher  *redisdelay.Publisher
	subscriber *redisdelay.Subscriber
	router     *message.Router
	orders     orders // your own type, for your database
}

func (s *shop) closeLater(order string) error {
	msg := message.NewMessage(watermill.NewUUID(), []byte(order))
	delay.Message(msg, delay.For(30*time.Minute)) // or delay.Until(at)
	redisdelay.SetKey(msg, order)                 // to cancel or reschedule it, see below
	return s.publisher.Publish("orders.close", msg)
}

// end of recipe

// recipe: handle messages
func newShop(client redis.UniversalClient, orders orders, logger watermill.LoggerAdapter) (*shop, error) {
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, logger)
	if err != nil {
		return nil, err
	}
	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client:        client,
		ConsumerGroup: "billing",
		MaxInFlight:   10, // concurrent handlers; default: 1
		MaxDeliveries: 20, // then it is a dead message, after about eleven minutes; default: retry forever
	}, logger)
	if err != nil {
		return nil, err
	}
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return nil, err
	}
	s := &shop{client, publisher, subscriber, router, orders}
	router.AddMiddleware(redisdelay.RecordErrors) // stores the handler's error with its message
	router.AddConsumerHandler("close", "orders.close", subscriber, s.closeOrder)
	return s, nil
}

func (s *shop) closeOrder(msg *message.Message) error {
	return s.orders.Close(msg.Context(), string(msg.Payload)) // unless it has been paid
}

// end of recipe

// recipe: cancel and reschedule
func (s *shop) paid(ctx context.Context, order string) (redisdelay.Status, error) {
	return s.publisher.Cancel(ctx, "orders.close", order)
}

func (s *shop) snoozed(ctx context.Context, order string) (redisdelay.Status, error) {
	return s.publisher.Reschedule(ctx, "orders.close", order, delay.For(10*time.Minute))
}

// end of recipe

// recipe: shut down
func (s *shop) serve(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := s.router.Run(ctx)
	return errors.Join(err, s.subscriber.Close(), s.publisher.Close(), s.client.Close()) // in this order
}

// end of recipe

type orders interface {
	Close(ctx context.Context, order string) error
}

// closings are the orders that were closed. The first attempt fails.
type closings struct {
	failed bool // owned by the handler of the first message
	closed chan string
}

func (c *closings) Close(_ context.Context, order string) error {
	if !c.failed {
		c.failed = true
		return errHandler
	}
	c.closed <- order
	return nil
}

// TestTheShopOfTheBasicsGuide is that of docs/use/basics.md: orders are closed, paid and snoozed, and the shop shuts down.
func TestTheShopOfTheBasicsGuide(t *testing.T) {
	server := redistest.New(t)
	scene := fixture.NewOn(t, server)
	scene.Topic = "orders.close"
	ended := &closings{closed: make(chan string, 1)}
	s, err := newShop(redis.NewClient(&redis.Options{Addr: server.Addr}), ended, scene.Log)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	served := make(chan error, 1)
	go func() { served <- s.serve(ctx) }()
	<-s.router.Running()

	require.NoError(t, s.closeLater("order-41"))
	require.ErrorIs(t, s.closeLater("order-41"), redisdelay.ErrDuplicateMessage)
	status, err := s.paid(ctx, "order-41")
	require.NoError(t, err)
	assert.True(t, status.Scheduled)
	_, err = s.paid(ctx, "order-41")
	require.ErrorIs(t, err, redisdelay.ErrMessageNotFound)

	require.NoError(t, s.closeLater("order-42"))
	assertDueIn(scene, 30*time.Minute)
	_, err = s.snoozed(ctx, "order-42")
	require.NoError(t, err)
	assertDueIn(scene, 10*time.Minute)
	_, err = s.publisher.Reschedule(ctx, "orders.close", "order-42", delay.For(0))
	require.NoError(t, err)
	assert.Equal(t, "order-42", <-ended.closed, "after a failure and a retry")

	stop()
	require.NoError(t, <-served)
	scene.Settled() // the last ack is in Redis
}

// assertDueIn checks when the only message that is scheduled is due.
func assertDueIn(s *fixture.Scene, by time.Duration) {
	s.T.Helper()
	scheduled, err := s.Client.ZRangeWithScores(s.T.Context(), s.Key("scheduled"), 0, -1).Result()
	require.NoError(s.T, err)
	require.Len(s.T, scheduled, 1)
	assert.WithinDuration(s.T, s.Now().Add(by), time.UnixMilli(int64(scheduled[0].Score)), fixture.Soon)
}
