package acceptance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

// These programs have the ideas of Watermill's own examples. Only their constructors are ours. Others are in routers_test.go and,
// for the requeuer, in delay_on_error_test.go.

var asJSON = cqrs.JSONMarshaler{GenerateName: cqrs.StructName}

// TestARealtimeFeed has two services read the posts: one counts them and publishes the count, one makes a feed. Some
// handlers fail or panic; a throttle, retries and a poison queue are around them.
func TestARealtimeFeed(t *testing.T) {
	const posts = 50
	s := fixture.New(t)
	pub := s.Publisher()
	poison, err := middleware.PoisonQueue(pub, s.Topic+"/poison")
	require.NoError(t, err)
	router := newRouter(s)
	router.AddMiddleware(middleware.NewThrottle(1000, time.Second).Middleware, poison,
		middleware.Retry{MaxRetries: 2, InitialInterval: time.Millisecond}.Middleware, middleware.CorrelationID, middleware.Recoverer)
	var seen atomic.Int64
	counts, feed := make(chan string, posts), make(chan string, posts)
	router.AddHandler("posts counter", s.Topic, s.Subscriber(inGroup("counter")), s.Topic+"/count", pub,
		func(*message.Message) ([]*message.Message, error) {
			n := seen.Add(1)
			if n%10 == 3 {
				panic("the storage is away")
			}
			return message.Messages{message.NewMessage(fmt.Sprint(n), nil)}, nil
		})
	router.AddConsumerHandler("feed generator", s.Topic, s.Subscriber(inGroup("feed")), func(msg *message.Message) error {
		feed <- msg.UUID
		return nil
	})
	router.AddConsumerHandler("counts", s.Topic+"/count", s.Subscriber(inGroup("counts")), func(msg *message.Message) error {
		counts <- middleware.MessageCorrelationID(msg)
		return nil
	})
	run(s, router)
	var want []string
	for i := range posts {
		msg := message.NewMessage(fmt.Sprint(i), nil)
		middleware.SetCorrelationID(msg.UUID, msg)
		require.NoError(t, pub.Publish(s.Topic, msg))
		want = append(want, msg.UUID)
	}
	assertGot(t, want, feed)
	assertGot(t, want, counts)
}

func inGroup(name string) func(*redisdelay.SubscriberConfig) {
	return func(c *redisdelay.SubscriberConfig) { c.ConsumerGroup = name }
}

type (
	signUp   struct{ User, Email string }
	signedUp struct{ User, Email string }
	mailSet  struct{ User, Email string }
)

// TestReadModelsSeeTheEventsOfAUserInOrder has one topic of commands and one of events, and two groups of event handlers
// that each keep a model.
func TestReadModelsSeeTheEventsOfAUserInOrder(t *testing.T) {
	const users = 20
	s := fixture.New(t)
	router := newRouter(s)
	pub := inOrderOfUsers{s.Publisher()}
	commands, err := cqrs.NewCommandBusWithConfig(pub, cqrs.CommandBusConfig{
		GeneratePublishTopic: func(cqrs.CommandBusGeneratePublishTopicParams) (string, error) { return s.Topic + "/commands", nil },
		Marshaler:            asJSON,
	})
	require.NoError(t, err)
	events, err := cqrs.NewEventBusWithConfig(pub, cqrs.EventBusConfig{
		GeneratePublishTopic: func(cqrs.GenerateEventPublishTopicParams) (string, error) { return s.Topic + "/events", nil },
		Marshaler:            asJSON,
	})
	require.NoError(t, err)
	commandProcessor, err := cqrs.NewCommandProcessorWithConfig(router, cqrs.CommandProcessorConfig{
		GenerateSubscribeTopic: func(cqrs.CommandProcessorGenerateSubscribeTopicParams) (string, error) {
			return s.Topic + "/commands", nil
		},
		SubscriberConstructor: func(p cqrs.CommandProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return s.Subscriber(inGroup(p.HandlerName)), nil
		},
		Marshaler: asJSON,
	})
	require.NoError(t, err)
	require.NoError(t, commandProcessor.AddHandlers(
		cqrs.NewCommandHandler("sign up", func(ctx context.Context, c *signUp) error {
			return errors.Join(events.Publish(ctx, signedUp(*c)), events.Publish(ctx, mailSet{c.User, "second"}))
		}),
	))
	eventProcessor, err := cqrs.NewEventGroupProcessorWithConfig(router, cqrs.EventGroupProcessorConfig{
		GenerateSubscribeTopic: func(cqrs.EventGroupProcessorGenerateSubscribeTopicParams) (string, error) {
			return s.Topic + "/events", nil
		},
		SubscriberConstructor: func(p cqrs.EventGroupProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return s.Subscriber(inGroup(p.EventGroupName)), nil
		},
		Marshaler: asJSON,
	})
	require.NoError(t, err)
	var mu sync.Mutex
	models := map[string][]string{}
	note := func(model, user, what string) error {
		mu.Lock()
		defer mu.Unlock()
		models[model+" "+user] = append(models[model+" "+user], what)
		return nil
	}
	for _, model := range []string{"subscribers", "timeline"} {
		require.NoError(t, eventProcessor.AddHandlersGroup(model,
			cqrs.NewGroupEventHandler(func(_ context.Context, e *signedUp) error { return note(model, e.User, e.Email) }),
			cqrs.NewGroupEventHandler(func(_ context.Context, e *mailSet) error { return note(model, e.User, e.Email) }),
		))
	}
	run(s, router)
	var sending sync.WaitGroup
	for u := range users {
		sending.Go(func() {
			user := fmt.Sprint("user-", u)
			assert.NoError(t, commands.Send(t.Context(), signUp{user, "first"}))
		})
	}
	sending.Wait()
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		for _, events := range models {
			if len(events) < 2 {
				return false
			}
		}
		return len(models) == 2*users
	}, fixture.Soon, 5*time.Millisecond)
	mu.Lock()
	defer mu.Unlock()
	for name, events := range models {
		assert.Equal(t, []string{"first", "second"}, events, name)
	}
}

// inOrderOfUsers publishes the messages of each user with an ordering key.
type inOrderOfUsers struct{ message.Publisher }

func (p inOrderOfUsers) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		_, user, _ := strings.Cut(string(msg.Payload), `"User":"`)
		user, _, _ = strings.Cut(user, `"`)
		redisdelay.SetOrderingKey(msg, user)
	}
	return p.Publisher.Publish(topic, messages...)
}

type (
	orderPlaced      struct{ Customer string }
	sendFeedbackForm struct{ To string }
)

// TestADelayedCommandGoesThroughAForwarder: the handler of an event sends a command with a delay, through an outbox that
// a forwarder reads.
func TestADelayedCommandGoesThroughAForwarder(t *testing.T) {
	const wait = 300 * time.Millisecond
	s := fixture.New(t)
	router, pub := newRouter(s), s.Publisher()
	outbox := forwarder.NewPublisher(s.Publisher(), forwarder.PublisherConfig{ForwarderTopic: s.Topic + "/outbox"})
	commands, err := cqrs.NewCommandBusWithConfig(outbox, cqrs.CommandBusConfig{
		GeneratePublishTopic: func(p cqrs.CommandBusGeneratePublishTopicParams) (string, error) { return s.Topic + p.CommandName, nil },
		OnSend: func(p cqrs.CommandBusOnSendParams) error {
			if by, set := delayOf(p.Message.Context()); set {
				delay.Message(p.Message, by)
			}
			return nil
		},
		Marshaler: asJSON,
	})
	require.NoError(t, err)
	_, err = forwarder.NewForwarder(s.Subscriber(), pub, watermill.NopLogger{},
		forwarder.Config{ForwarderTopic: s.Topic + "/outbox", Router: router})
	require.NoError(t, err)
	processor, err := cqrs.NewCommandProcessorWithConfig(router, cqrs.CommandProcessorConfig{
		GenerateSubscribeTopic: func(p cqrs.CommandProcessorGenerateSubscribeTopicParams) (string, error) {
			return s.Topic + p.CommandName, nil
		},
		SubscriberConstructor: func(p cqrs.CommandProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return s.Subscriber(inGroup(p.HandlerName)), nil
		},
		Marshaler: asJSON,
	})
	require.NoError(t, err)
	got := make(chan string, 10)
	var placed atomic.Int64
	require.NoError(t, processor.AddHandlers(
		cqrs.NewCommandHandler("order", func(ctx context.Context, e *orderPlaced) error {
			placed.Store(time.Now().UnixNano())
			return commands.Send(context.WithValue(ctx, delayKey{}, delay.For(wait)), sendFeedbackForm{To: e.Customer})
		}),
		cqrs.NewCommandHandler("feedback", func(_ context.Context, c *sendFeedbackForm) error {
			if since := time.Since(time.Unix(0, placed.Load())); since < wait {
				got <- fmt.Sprint("early by ", wait-since)
			}
			got <- c.To
			return nil
		}),
	))
	run(s, router)
	require.NoError(t, commands.Send(t.Context(), orderPlaced{"amelia"}))
	assertGot(t, []string{"amelia"}, got)
}

type delayKey struct{}

func delayOf(ctx context.Context) (delay.Delay, bool) {
	d, set := ctx.Value(delayKey{}).(delay.Delay)
	return d, set
}

// TestServicesShareTheEventsOfATopicByTheirGroups: each service gets all of them, and each of its instances some.
func TestServicesShareTheEventsOfATopicByTheirGroups(t *testing.T) {
	s := fixture.New(t)
	router, got := newRouter(s), make(chan string, 200)
	for _, service := range []string{"crm", "newsletter"} {
		for instance := range 3 {
			router.AddConsumerHandler(fmt.Sprint(service, instance), s.Topic, s.Subscriber(inGroup(service)), func(msg *message.Message) error {
				got <- service + " " + msg.UUID
				return nil
			})
		}
	}
	run(s, router)
	var want []string
	for i := range 30 {
		s.Publish(fmt.Sprint(i))
		want = append(want, fmt.Sprint("crm ", i), fmt.Sprint("newsletter ", i))
	}
	assertGot(t, want, got)
}
