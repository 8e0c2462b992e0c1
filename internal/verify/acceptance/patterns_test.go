package acceptance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/components/requestreply"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/dashboard"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture/dead"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/observe"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

// replies receives all replies of a process with one subscription, and distributes them in memory.
func replies(client redis.UniversalClient, topic string, logger watermill.LoggerAdapter) (*gochannel.FanOut, error) {
	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client: client, ConsumerGroup: redisdelay.Broadcast, MaxInFlight: 100,
	}, logger)
	if err != nil {
		return nil, err
	}
	fanOut, err := gochannel.NewFanOut(subscriber, logger)
	if err != nil {
		return nil, err
	}
	fanOut.AddSubscription(topic)
	return fanOut, nil // Run it before the first request
}

// requestReply is a backend for command buses and handlers, which uses replies.
func requestReply[Result any](
	publisher message.Publisher, replies message.Subscriber, topic string,
) (*requestreply.PubSubBackend[Result], error) {
	return requestreply.NewPubSubBackend(requestreply.PubSubBackendConfig{
		Publisher:              publisher,
		SubscriberConstructor:  func(requestreply.PubSubBackendSubscribeParams) (message.Subscriber, error) { return replies, nil },
		GeneratePublishTopic:   func(requestreply.PubSubBackendPublishParams) (string, error) { return topic, nil },
		GenerateSubscribeTopic: func(requestreply.PubSubBackendSubscribeParams) (string, error) { return topic, nil },
	}, requestreply.BackendPubsubJSONMarshaler[Result]{})
}

// recipe: outbox
func inTransaction(outbox message.Publisher) (message.Publisher, error) {
	envelopes := forwarder.NewPublisher(outbox, forwarder.PublisherConfig{ForwarderTopic: "outbox"})
	// An envelope stores no context, so this copies the delay from the context to the metadata first.
	return delay.NewPublisher(envelopes, delay.PublisherConfig{AllowNoDelay: true})
}

func forward(table message.Subscriber, client redis.UniversalClient, logger watermill.LoggerAdapter) (*forwarder.Forwarder, error) {
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{
		Client:              client,
		OnDuplicate:         redisdelay.IgnoreDuplicate,
		DeduplicationWindow: time.Hour, // longer than the forwarder may take to publish a message again
	}, logger)
	if err != nil {
		return nil, err
	}
	return forwarder.NewForwarder(table, publisher, logger, forwarder.Config{ForwarderTopic: "outbox"})
}

// end of recipe

func placeOrder(ctx context.Context, db *sql.DB, outboxOf func(*sql.Tx) (message.Publisher, error), order []byte) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // it has no effect after Commit
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (content) VALUES ($1)", order); err != nil {
		return err
	}
	table, err := outboxOf(tx)
	if err != nil {
		return err
	}
	// recipe: a transaction with an outbox
	outbox, err := inTransaction(table)
	if err != nil {
		return err
	}
	reminder := message.NewMessage(watermill.NewUUID(), order)
	reminder.SetContext(delay.WithContext(ctx, delay.For(24*time.Hour)))
	if err := outbox.Publish("reminders", reminder); err != nil {
		return err
	}
	return tx.Commit()
	// end of recipe
}

var _ = placeOrder // the tests have no database

type service struct {
	http       *http.Server
	dashboard  *dashboard.Dashboard
	schedules  *periodic.Scheduler
	forwarder  *forwarder.Forwarder
	router     *message.Router
	subscriber *redisdelay.Subscriber
	publisher  *redisdelay.Publisher
	client     redis.UniversalClient
}

// run ends each part before those that it uses, as docs/use/recipes.md explains.
func (s *service) run(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	lasting := context.WithoutCancel(ctx) // so that a signal does not end all parts at once
	scheduling, stopScheduling := context.WithCancel(lasting)
	defer stopScheduling()

	parts, ended := errgroup.WithContext(ctx)
	parts.Go(s.http.ListenAndServe)
	parts.Go(func() error { return s.schedules.Run(scheduling) })
	parts.Go(func() error { return s.forwarder.Run(lasting) })
	parts.Go(func() error { return s.router.Run(lasting) })
	<-ended.Done() // a signal arrived, or a part failed

	limited, cancel := context.WithTimeout(lasting, 30*time.Second)
	defer cancel()
	errs := []error{s.dashboard.Close(), s.http.Shutdown(limited)}
	stopScheduling()
	errs = append(errs, s.forwarder.Close(), s.router.Close())
	if err := parts.Wait(); !errors.Is(err, http.ErrServerClosed) {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, s.subscriber.Close(), s.publisher.Close(), s.client.Close())...)
}

// recipe: the last attempt
func orGiveUp(giveUp message.NoPublishHandlerFunc) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			ctx := msg.Context()
			produced, err := next(msg)
			d, ok := redisdelay.DeliveryFromContext(ctx)
			if !ok || err == nil || d.Deferred() || !d.IsLastAttempt() && !d.Buried() {
				return produced, err
			}
			msg.SetContext(ctx) // Timeout leaves an ended context on the message
			return produced, errors.Join(err, giveUp(msg))
		}
	}
}

// end of recipe

func reminderFor(ctx context.Context, customer string) *message.Message {
	msg := message.NewMessage(watermill.NewUUID(), []byte(customer))
	delay.Message(msg, delay.For(24*time.Hour))
	msg.SetContext(ctx)
	return msg
}

func remindAll(ctx context.Context, publisher *redisdelay.Publisher, topic string, customers []string) (failed error) {
	// recipe: many messages from one goroutine
	var futures []*redisdelay.PublishFuture
	for _, customer := range customers {
		futures = append(futures, publisher.PublishAsync(topic, reminderFor(ctx, customer)))
	}
	for _, future := range futures { // wait for all, because ctx may end when this function returns
		if err := future.Wait(ctx); failed == nil {
			failed = err
		}
	}
	return failed
	// end of recipe
}

// recipe: bulk inserts
func insertInBulk(ctx context.Context, subscriber *redisdelay.Subscriber, topic string, insert func(rows ...[]byte) error) error {
	return subscriber.SubscribeBatches(ctx, topic, 500, func(batch []*message.Message) {
		var rows [][]byte
		for _, msg := range batch {
			rows = append(rows, msg.Payload)
		}
		err := insert(rows...)
		for _, msg := range batch {
			if err != nil { // insert the rows one by one, so that only bad rows fail
				if failed := insert(msg.Payload); failed != nil {
					d, _ := redisdelay.DeliveryFromContext(msg.Context())
					d.RecordError(failed)
					msg.Nack()
					continue
				}
			}
			msg.Ack()
		}
	})
}

// end of recipe

type square struct{ N int }

func chargeMonthly(publisher message.Publisher, topic string, charge func(customer, month string) error) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		customer, month := string(msg.Payload), msg.Metadata.Get("month")
		due, err := time.Parse("2006-01", month)
		if err != nil {
			return err
		}
		if err := charge(customer, month); err != nil {
			return err
		}
		return publisher.Publish(topic, chargeOf(msg.Context(), customer, due.AddDate(0, 1, 0)))
	}
}

// recipe: a message that schedules its successor
func chargeOf(ctx context.Context, customer string, due time.Time) *message.Message {
	month := due.Format("2006-01")
	msg := message.NewMessage(watermill.NewUUID(), []byte(customer))
	msg.SetContext(ctx)
	msg.Metadata.Set("month", month)
	redisdelay.SetKey(msg, "invoice-"+customer+"/"+month)      // a key for each month
	redisdelay.SetOnDuplicate(msg, redisdelay.IgnoreDuplicate) // a redelivery publishes the same key again
	delay.Message(msg, delay.Until(due))
	return msg
}

// end of recipe

// commandBus runs a handler of commands, and returns the bus to send them.
func commandBus(s *fixture.Scene, backend *requestreply.PubSubBackend[int]) *cqrs.CommandBus {
	s.T.Helper()
	router := newRouter(s)
	processor, err := cqrs.NewCommandProcessorWithConfig(router, cqrs.CommandProcessorConfig{
		GenerateSubscribeTopic: func(cqrs.CommandProcessorGenerateSubscribeTopicParams) (string, error) { return s.Topic, nil },
		SubscriberConstructor: func(cqrs.CommandProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return s.Subscriber(func(c *subConfig) { c.MaxInFlight = 10 }), nil
		},
		Marshaler: cqrs.JSONMarshaler{},
	})
	require.NoError(s.T, err)
	require.NoError(s.T, processor.AddHandlers(requestreply.NewCommandHandlerWithResult[square](
		"square", backend, func(_ context.Context, c *square) (int, error) { return c.N * c.N, nil },
	)))
	bus, err := cqrs.NewCommandBusWithConfig(s.Publisher(), cqrs.CommandBusConfig{
		GeneratePublishTopic: func(cqrs.CommandBusGeneratePublishTopicParams) (string, error) { return s.Topic, nil },
		Marshaler:            cqrs.JSONMarshaler{},
	})
	require.NoError(s.T, err)
	run(s, router)
	return bus
}

// request sends this many requests from each of some clients at once; all must be answered.
func request(s *fixture.Scene, subscriber message.Subscriber, clients, each int) {
	s.T.Helper()
	backend, err := requestReply[int](s.Publisher(), subscriber, s.Topic+"/replies")
	require.NoError(s.T, err)
	bus := commandBus(s, backend)
	ctx, cancel := context.WithTimeout(s.T.Context(), fixture.Soon)
	defer cancel()
	var running sync.WaitGroup
	for client := range clients {
		running.Go(func() {
			for i := range each {
				n := client*each + i
				reply, err := requestreply.SendWithReply(ctx, bus, backend, &square{n})
				assert.NoError(s.T, errors.Join(err, reply.Error))
				assert.Equal(s.T, n*n, reply.HandlerResult)
			}
		})
	}
	running.Wait()
}

func TestManyRequestsAreAnsweredThroughOneBroadcastSubscription(t *testing.T) {
	s := fixture.New(t)
	fanOut, err := replies(s.Client, s.Topic+"/replies", watermill.NopLogger{})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- fanOut.Run(context.Background()) }()
	<-fanOut.Running()
	request(s, fanOut, 20, 10)
	require.NoError(t, fanOut.Close())
	require.NoError(t, <-ended)
}

// TestTheOutboxForwardsDelayedMessagesOnce. An in-memory Pub/Sub stands for the table, which the forwarder reads again.
func TestTheOutboxForwardsDelayedMessagesOnce(t *testing.T) {
	t.Parallel() // it mostly waits
	s := fixture.New(t)
	table := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
	messages := s.Subscribe(func(c *subConfig) { c.MaxInFlight = 10 })
	outbox, err := inTransaction(table)
	require.NoError(t, err)
	fromContext := fixture.Keyed("as its context says", "order-1/close", 0)
	fromContext.SetContext(delay.WithContext(t.Context(), delay.For(500*time.Millisecond)))
	require.NoError(t, outbox.Publish(s.Topic,
		fixture.Keyed("later", "order-1/remind", 500*time.Millisecond), fixture.Keyed("now", "order-1", 0), fromContext))
	committed := s.Now()
	for range 2 { // the second time, nothing is stored
		f, err := forward(table, s.Client, watermill.NopLogger{})
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { ended <- f.Run(context.Background()) }()
		<-f.Running()
		defer func() {
			require.NoError(t, f.Close())
			require.NoError(t, <-ended)
		}()
	}
	s.Expect(messages, "now")
	var delayed []string
	for range 2 {
		msg := s.Next(messages)
		delayed = append(delayed, msg.UUID)
		assert.GreaterOrEqual(t, fixture.Delivery(t, msg).DueAt.Sub(committed), 400*time.Millisecond)
		msg.Ack()
	}
	assert.ElementsMatch(t, []string{"later", "as its context says"}, delayed)
	s.Idle(messages)
}

// TestAServiceShutsDownInOrder while a handler publishes.
func TestAServiceShutsDownInOrder(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Shared(t).Addr})
	s := fixture.NewWith(t, client)
	p, sub := s.Publisher(), s.Subscriber()
	operator, err := admin.New(admin.Config{Client: client})
	require.NoError(t, err)
	page, err := dashboard.New(dashboard.Config{Admin: operator})
	require.NoError(t, err)
	schedules, err := periodic.New(periodic.Config{Client: client}, nil)
	require.NoError(t, err)
	fwd, err := forward(gochannel.NewGoChannel(gochannel.Config{}, nil), client, watermill.NopLogger{})
	require.NoError(t, err)
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	require.NoError(t, err)
	handling, goOn := make(chan struct{}), make(chan struct{})
	published := make(chan error, 1)
	router.AddConsumerHandler("slow", s.Topic, sub, func(msg *message.Message) error {
		close(handling)
		<-goOn
		next := message.NewMessage("next", nil)
		next.SetContext(msg.Context())
		err := p.Publish(s.Topic+"/next", next)
		published <- err
		return err
	})
	whole := &service{
		http: &http.Server{Addr: "127.0.0.1:0", Handler: page}, dashboard: page, schedules: schedules, forwarder: fwd,
		router: router, subscriber: sub, publisher: p, client: client,
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- whole.run(ctx) }()
	<-router.Running()
	<-fwd.Running()
	s.Publish("a")
	<-handling
	stop()
	close(goOn)
	require.NoError(t, <-published)
	require.NoError(t, <-ended)
}

func TestOrGiveUpRunsOnTheLastAttempt(t *testing.T) {
	for name, inside := range map[string]message.HandlerMiddleware{
		"alone":              func(next message.HandlerFunc) message.HandlerFunc { return next },
		"around retries":     middleware.Retry{MaxRetries: 2}.Middleware,
		"around a decision":  decide,
		"around a timeout":   middleware.Timeout(time.Minute), // its context ends with the handler
		"around a recoverer": middleware.Recoverer,
	} {
		t.Run(name, func(t *testing.T) {
			s := fixture.New(t)
			var handled, givenUp atomic.Int64
			route(s, attempts(3), func(*message.Message) error {
				handled.Add(1)
				if name == "around a recoverer" {
					panic(errMailbox)
				}
				return errMailbox
			}, redisdelay.RecordErrors, orGiveUp(func(msg *message.Message) error {
				givenUp.Add(1)
				assert.NoError(t, msg.Context().Err())
				return nil
			}), inside)
			s.Publish("a")
			assert.Contains(t, dead.Messages(s, 1)[0].Reason, "not acked in 3 deliveries: ")
			assert.Contains(t, dead.Messages(s, 1)[0].Reason, errMailbox.Error())
			if name != "around retries" {
				assert.EqualValues(t, 3, handled.Load())
			}
			assert.EqualValues(t, 1, givenUp.Load())
		})
	}
}

// TestOrGiveUpSkipsMessagesThatAreRetried: a retry handles the message, or it is redelivered.
func TestOrGiveUpSkipsMessagesThatAreRetried(t *testing.T) {
	for name, test := range map[string]struct {
		fails  error
		inside message.HandlerMiddleware
		ended  func(s *fixture.Scene)
	}{
		"a retry": {errMailbox, middleware.Retry{MaxRetries: 2}.Middleware, (*fixture.Scene).Settled},
		"deferred": {errNotPaid, decide, func(s *fixture.Scene) {
			require.Eventually(s.T, func() bool {
				return s.Client.HLen(s.T.Context(), s.Key("attempts:default")).Val() == 1
			}, fixture.Soon, 5*time.Millisecond)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := fixture.New(t)
			var handled, givenUp atomic.Int64
			route(s, attempts(1), func(*message.Message) error {
				if handled.Add(1) == 1 {
					return test.fails
				}
				return nil
			}, orGiveUp(func(*message.Message) error { givenUp.Add(1); return nil }), test.inside)
			s.Publish("a")
			test.ended(s)
			assert.Zero(t, givenUp.Load())
		})
	}
}

func TestOneGoroutinePublishesAllReminders(t *testing.T) {
	s := fixture.New(t)
	require.NoError(t, remindAll(t.Context(), s.Publisher(), s.Topic, slices.Repeat([]string{"a customer"}, 1000)))
	assert.EqualValues(t, 1000, s.Client.ZCard(t.Context(), s.Key("scheduled")).Val())
	publisher := s.Publisher()
	require.NoError(t, publisher.Close())
	require.ErrorIs(t, remindAll(t.Context(), publisher, s.Topic, []string{"a customer"}), redisdelay.ErrPublisherClosed)
}

func TestABadRowFailsAloneInABulkInsert(t *testing.T) {
	s := fixture.New(t)
	var mu sync.Mutex
	var stored []string
	require.NoError(t, insertInBulk(t.Context(), s.Subscriber(attempts(2)), s.Topic, func(rows ...[]byte) error {
		mu.Lock()
		defer mu.Unlock()
		if slices.ContainsFunc(rows, func(row []byte) bool { return strings.Contains(string(row), "bad") }) {
			return errMailbox
		}
		for _, row := range rows {
			stored = append(stored, string(row))
		}
		return nil
	}))
	var uuids, want []string
	for i := range 50 {
		uuids = append(uuids, fmt.Sprint(i))
		want = append(want, "payload of "+uuids[i])
	}
	s.Publish(append(uuids, "bad")...)
	assert.Contains(t, dead.Messages(s, 1)[0].Reason, errMailbox.Error())
	mu.Lock()
	defer mu.Unlock()
	assert.ElementsMatch(t, want, stored)
}

func TestAMessageSchedulesItsSuccessorOnce(t *testing.T) {
	s := fixture.New(t)
	var ignored atomic.Int64
	publisher := s.Publisher(func(c *redisdelay.PublisherConfig) {
		c.DeduplicationWindow = time.Minute
		c.Observer.Published = func(e observe.Published) { ignored.Add(int64(len(e.Ignored))) }
	})
	months := make(chan string, 10)
	charge := func(_, month string) error {
		months <- month
		return nil
	}
	var failed atomic.Bool
	failsOnce := func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			produced, err := next(msg)
			if err == nil && failed.CompareAndSwap(false, true) {
				err = errMailbox
			}
			return produced, err
		}
	}
	route(s, attempts(3), chargeMonthly(publisher, s.Topic, charge), failsOnce)
	now := time.Now().UTC()
	first := time.Date(now.Year(), now.Month()-1, 1, 0, 0, 0, 0, time.UTC)
	require.NoError(t, publisher.Publish(s.Topic, chargeOf(t.Context(), "42", first)))
	require.Eventually(t, func() bool { return len(months) == 3 }, fixture.Soon, 10*time.Millisecond, "the first month twice")
	charged := map[string]int{}
	for range 3 {
		charged[<-months]++
	}
	assert.Equal(t, map[string]int{first.Format("2006-01"): 2, now.Format("2006-01"): 1}, charged)
	next := "invoice-42/" + first.AddDate(0, 2, 0).Format("2006-01")
	require.Eventually(t, func() bool {
		status, err := publisher.Cancel(t.Context(), s.Topic, next)
		return err == nil && status.Scheduled
	}, fixture.Soon, 10*time.Millisecond, "the charge of the next month waits")
	assert.EqualValues(t, 1, ignored.Load(), "that of the redelivery")
}
