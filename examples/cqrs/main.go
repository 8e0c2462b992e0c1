// Cqrs sends delayed commands over Watermill's command bus.
//
// Each user is welcomed at once. The handler of that command sends a delayed command to remind the user, and its handler sends
// the last reminder. A delay only takes delay.WithContext in the call of Send.
//
// It ends by itself, with an error if a command came early or not at all.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/examples/internal/redisserver"
)

const (
	deadline      = 15 * time.Second // ends the program when commands are missing
	firstReminder = 1500 * time.Millisecond
	lastReminder  = 2 * time.Second // after the first
)

var users = []string{"amelia", "jonas", "priya"}

func main() { redisserver.Main(deadline, run) }

// run is the same as with any other Pub/Sub, except for the constructors of the publisher and the subscribers.
func run(ctx context.Context, server *redisserver.Server) error {
	topics := topics{prefix: redisserver.Topic("commands")}
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: server.Client()}, redisserver.Logger())
	if err != nil {
		return fmt.Errorf("create publisher: %w", err)
	}
	bus, err := cqrs.NewCommandBusWithConfig(publisher, cqrs.CommandBusConfig{
		GeneratePublishTopic: topics.publish, Marshaler: marshaler,
	})
	if err != nil {
		return fmt.Errorf("create command bus: %w", err)
	}
	router, err := message.NewRouter(message.RouterConfig{}, redisserver.Logger())
	if err != nil {
		return fmt.Errorf("create router: %w", err)
	}
	r := &reminders{bus: bus, ended: make(chan error)}
	if err := addHandlers(router, server.Client(), topics, r); err != nil {
		return err
	}
	fmt.Printf("%d users on %s.\n\n", len(users), server)
	running := make(chan error, 1)
	go func() { running <- router.Run(ctx) }() // ends with Close
	for _, user := range users {               // commands that are sent before the router runs wait in Redis
		err = errors.Join(err, bus.Send(ctx, WelcomeUser{User: user}))
	}
	for range users {
		select {
		case early := <-r.ended:
			err = errors.Join(err, early)
		case <-ctx.Done():
			err = errors.Join(err, errors.New("a reminder is missing"))
		}
	}
	return errors.Join(err, router.Close(), <-running, publisher.Close()) //nolint:contextcheck // Close has a timeout of its own
}

// addHandlers gives each command handler its own consumer group.
func addHandlers(router *message.Router, client redis.UniversalClient, topics topics, r *reminders) error {
	processor, err := cqrs.NewCommandProcessorWithConfig(router, cqrs.CommandProcessorConfig{
		GenerateSubscribeTopic: topics.subscribe,
		SubscriberConstructor: func(p cqrs.CommandProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
				Client: client, ConsumerGroup: p.HandlerName,
			}, redisserver.Logger())
		},
		Marshaler: marshaler,
	})
	if err != nil {
		return fmt.Errorf("create command processor: %w", err)
	}
	return processor.AddHandlers(
		cqrs.NewCommandHandler("welcome_user", r.welcome),
		cqrs.NewCommandHandler("remind_user", r.remind),
	)
}

var marshaler = cqrs.JSONMarshaler{GenerateName: cqrs.StructName}

// topics names a topic for each command.
type topics struct{ prefix string }

func (t topics) publish(p cqrs.CommandBusGeneratePublishTopicParams) (string, error) {
	return t.prefix + "." + p.CommandName, nil
}

func (t topics) subscribe(p cqrs.CommandProcessorGenerateSubscribeTopicParams) (string, error) {
	return t.prefix + "." + p.CommandName, nil
}

// WelcomeUser is a command that is handled at once.
type WelcomeUser struct {
	User string `json:"user"`
}

// RemindUser is a command that is sent with a delay.
type RemindUser struct {
	User      string    `json:"user"`
	Text      string    `json:"text"`
	Last      bool      `json:"last"`
	NotBefore time.Time `json:"not_before"` // to see whether it is early
}

// reminders handles the commands.
type reminders struct {
	bus   *cqrs.CommandBus
	ended chan error // gets the outcome of each last reminder
}

func (r *reminders) welcome(ctx context.Context, command *WelcomeUser) error {
	fmt.Printf("%-7s Welcome!\n", command.User)
	return r.send(ctx, firstReminder, RemindUser{User: command.User, Text: "Have you verified your address?"})
}

func (r *reminders) remind(ctx context.Context, command *RemindUser) error {
	fmt.Printf("%-7s %s\n", command.User, command.Text)
	var early error
	if time.Now().Before(command.NotBefore) {
		early = fmt.Errorf("a reminder of %s came early", command.User)
	}
	if early == nil && !command.Last {
		return r.send(ctx, lastReminder, RemindUser{User: command.User, Text: "Your account is about to expire.", Last: true})
	}
	select {
	case r.ended <- early:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// send sends a reminder that is due after a delay.
func (r *reminders) send(ctx context.Context, after time.Duration, command RemindUser) error {
	command.NotBefore = time.Now().Add(after)
	return r.bus.Send(delay.WithContext(ctx, delay.For(after)), command)
}
