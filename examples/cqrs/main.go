// Cqrs sends delayed commands over Watermill's command bus.
//
// Each user is welcomed at once. The handler of that command sends a delayed command to
// remind the user, and its handler sends the last reminder. A delay only takes
// delay.WithContext in the call of Send.
//
// It ends by itself, with an error if a command came early or not at all.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/examples/internal/redisserver"
)

// deadline ends the program when commands are missing.
const deadline = 15 * time.Second

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "cqrs:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	server, err := redisserver.Start(ctx)
	if err != nil {
		return err
	}
	defer server.Stop()
	users := []string{"amelia", "jonas", "priya"}
	fmt.Printf("%d users on %s.\n\n", len(users), server)

	app, err := newApp(server.Client(), len(users))
	if err != nil {
		return err
	}
	running := make(chan error, 1)
	go func() { running <- app.router.Run(ctx) }() // ends with Close

	err = app.signUp(ctx, users)
	if err == nil {
		err = app.reminders.wait(ctx)
	}
	return errors.Join(err, app.router.Close(), <-running, app.publisher.Close())
}

// app is a command bus with the handlers of its commands.
type app struct {
	publisher *redisdelay.Publisher
	bus       *cqrs.CommandBus
	router    *message.Router
	reminders *reminders
}

// newApp is the same as with any other Pub/Sub, except for the constructors of the
// publisher and the subscribers.
func newApp(client redis.UniversalClient, users int) (*app, error) {
	logger := watermill.NewSlogLogger(slog.New(
		slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}),
	))
	topics := topics{prefix: redisserver.Topic("commands")}
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, logger)
	if err != nil {
		return nil, fmt.Errorf("create publisher: %w", err)
	}
	bus, err := cqrs.NewCommandBusWithConfig(publisher, cqrs.CommandBusConfig{
		GeneratePublishTopic: topics.publish,
		Marshaler:            marshaler(),
		Logger:               logger,
	})
	if err != nil {
		return nil, fmt.Errorf("create command bus: %w", err)
	}
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return nil, fmt.Errorf("create router: %w", err)
	}
	reminders := newReminders(client, bus, users)
	if err := addHandlers(router, client, topics, reminders.handlers(), logger); err != nil {
		return nil, err
	}
	return &app{publisher: publisher, bus: bus, router: router, reminders: reminders}, nil
}

// addHandlers gives each command handler its own consumer group.
func addHandlers(
	router *message.Router, client redis.UniversalClient, topics topics,
	handlers []cqrs.CommandHandler, logger watermill.LoggerAdapter,
) error {
	processor, err := cqrs.NewCommandProcessorWithConfig(router, cqrs.CommandProcessorConfig{
		GenerateSubscribeTopic: topics.subscribe,
		SubscriberConstructor: func(p cqrs.CommandProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
				Client:        client,
				ConsumerGroup: p.HandlerName,
			}, logger)
		},
		Marshaler: marshaler(),
		Logger:    logger,
	})
	if err != nil {
		return fmt.Errorf("create command processor: %w", err)
	}
	if err := processor.AddHandlers(handlers...); err != nil {
		return fmt.Errorf("add command handlers: %w", err)
	}
	return nil
}

func marshaler() cqrs.CommandEventMarshaler {
	return cqrs.JSONMarshaler{GenerateName: cqrs.StructName}
}

// topics names a topic for each command.
type topics struct{ prefix string }

func (t topics) publish(p cqrs.CommandBusGeneratePublishTopicParams) (string, error) {
	return t.prefix + "." + p.CommandName, nil
}

func (t topics) subscribe(p cqrs.CommandProcessorGenerateSubscribeTopicParams) (string, error) {
	return t.prefix + "." + p.CommandName, nil
}

// signUp welcomes the users. Commands sent before the router runs wait in Redis.
func (a *app) signUp(ctx context.Context, users []string) error {
	for _, user := range users {
		if err := a.bus.Send(ctx, WelcomeUser{User: user}); err != nil {
			return fmt.Errorf("welcome %s: %w", user, err)
		}
	}
	return nil
}
