package redisdelay_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// Watermill's DelayOnError sends a message whose handler fails back to Redis, with a
// growing delay. Meanwhile it holds up no other message.
func Example_router() {
	client, stop := embedded()
	defer stop()
	publisher := must(redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, nil))
	subscriber := must(redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: client}, nil))

	router := must(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))
	backoff := middleware.DelayOnError{InitialInterval: 100 * time.Millisecond, MaxInterval: time.Minute, Multiplier: 2}
	router.AddMiddleware(backoff.Middleware)
	charged := make(chan struct{})
	router.AddConsumerHandler("charge", "payments", subscriber, func(msg *message.Message) error {
		if delivery, _ := redisdelay.DeliveryFromContext(msg.Context()); delivery.Attempt < 3 {
			fmt.Println("the gateway is away")
			return errors.New("the gateway is away")
		}
		fmt.Println("charged", string(msg.Payload))
		close(charged)
		return nil
	})
	go func() { check(router.Run(context.Background())) }()

	check(publisher.Publish("payments", message.NewMessage(watermill.NewUUID(), []byte("payment 7"))))
	<-charged
	check(errors.Join(router.Close(), publisher.Close()))
	// Output:
	// the gateway is away
	// the gateway is away
	// charged payment 7
}

// A delay on the context delays a command of Watermill's command bus.
func Example_cqrs() {
	type CloseOrder struct{ ID string }

	client, stop := embedded()
	defer stop()
	publisher := must(redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, nil))
	marshaler := cqrs.JSONMarshaler{GenerateName: cqrs.StructName}
	bus := must(cqrs.NewCommandBusWithConfig(publisher, cqrs.CommandBusConfig{
		GeneratePublishTopic: func(p cqrs.CommandBusGeneratePublishTopicParams) (string, error) {
			return p.CommandName, nil
		},
		Marshaler: marshaler,
	}))

	router := must(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))
	processor := must(cqrs.NewCommandProcessorWithConfig(router, cqrs.CommandProcessorConfig{
		GenerateSubscribeTopic: func(p cqrs.CommandProcessorGenerateSubscribeTopicParams) (string, error) {
			return p.CommandName, nil
		},
		SubscriberConstructor: func(cqrs.CommandProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: client}, nil)
		},
		Marshaler: marshaler,
	}))
	closed := make(chan struct{})
	check(processor.AddHandlers(cqrs.NewCommandHandler("close", func(_ context.Context, command *CloseOrder) error {
		fmt.Println("closing order", command.ID)
		close(closed)
		return nil
	})))
	go func() { check(router.Run(context.Background())) }()

	ctx := delay.WithContext(context.Background(), delay.For(200*time.Millisecond))
	check(bus.Send(ctx, CloseOrder{ID: "42"}))
	fmt.Println("sent")
	<-closed
	check(errors.Join(router.Close(), publisher.Close()))
	// Output:
	// sent
	// closing order 42
}
