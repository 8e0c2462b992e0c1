package redisdelay_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// embedded stands for your Redis.
func embedded() (client *redis.Client, stop func()) {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	client = redis.NewClient(&redis.Options{Addr: server.Addr()})
	return client, func() {
		_ = client.Close()
		server.Close()
	}
}

func Example() {
	client, stop := embedded()
	defer stop()
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, nil)
	if err != nil {
		log.Fatal(err)
	}
	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: client}, nil)
	if err != nil {
		log.Fatal(err)
	}
	messages, err := subscriber.Subscribe(context.Background(), "orders.close")
	if err != nil {
		log.Fatal(err)
	}

	for order, wait := range map[string]time.Duration{"order 1": 300 * time.Millisecond, "order 2": 100 * time.Millisecond} {
		msg := message.NewMessage(watermill.NewUUID(), []byte(order))
		delay.Message(msg, delay.For(wait))
		if err := publisher.Publish("orders.close", msg); err != nil {
			log.Fatal(err)
		}
	}
	for range 2 {
		msg := <-messages
		fmt.Println("closing", string(msg.Payload))
		msg.Ack()
	}
	if err := errors.Join(publisher.Close(), subscriber.Close()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// closing order 2
	// closing order 1
}

func ExamplePublisher_Cancel() {
	client, stop := embedded()
	defer stop()
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = publisher.Close() }()

	msg := message.NewMessage(watermill.NewUUID(), []byte("order 42"))
	msg.SetContext(delay.WithContext(context.Background(), delay.For(30*time.Minute)))
	redisdelay.SetKey(msg, "order-42")
	if err := publisher.Publish("orders.close", msg); err != nil {
		log.Fatal(err)
	}

	// The order is paid.
	fmt.Println(publisher.Cancel(context.Background(), "orders.close", "order-42"))
	err = publisher.Cancel(context.Background(), "orders.close", "order-42")
	fmt.Println(errors.Is(err, redisdelay.ErrMessageNotFound))
	// Output:
	// <nil>
	// true
}

func ExampleDeliveryFromContext() {
	client, stop := embedded()
	defer stop()
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, nil)
	if err != nil {
		log.Fatal(err)
	}
	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: client}, nil)
	if err != nil {
		log.Fatal(err)
	}
	messages, err := subscriber.Subscribe(context.Background(), "payments")
	if err != nil {
		log.Fatal(err)
	}
	if err := publisher.Publish("payments", message.NewMessage(watermill.NewUUID(), nil)); err != nil {
		log.Fatal(err)
	}

	msg := <-messages
	d, _ := redisdelay.DeliveryFromContext(msg.Context())
	fmt.Println("attempt", d.Attempt)
	msg.Nack() // comes back after SubscriberConfig.NackDelay

	msg = <-messages
	d, _ = redisdelay.DeliveryFromContext(msg.Context())
	fmt.Println("attempt", d.Attempt)
	msg.Ack()
	if err := errors.Join(publisher.Close(), subscriber.Close()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// attempt 1
	// attempt 2
}
