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

// embedded returns a client of a Redis inside this process, in place of your own.
func embedded() (client redis.UniversalClient, stop func()) {
	server := must(miniredis.Run())
	client = redis.NewClient(&redis.Options{Addr: server.Addr()})
	return client, func() {
		check(client.Close())
		server.Close()
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// A message with Watermill's delay metadata is delivered when it is due.
func Example() {
	client, stop := embedded()
	defer stop()
	publisher := must(redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, nil))
	subscriber := must(redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: client}, nil))
	messages := must(subscriber.Subscribe(context.Background(), "orders.close"))

	later := message.NewMessage(watermill.NewUUID(), []byte("order 1"))
	delay.Message(later, delay.For(300*time.Millisecond))
	sooner := message.NewMessage(watermill.NewUUID(), []byte("order 2"))
	delay.Message(sooner, delay.Until(time.Now().Add(100*time.Millisecond)))
	atOnce := message.NewMessage(watermill.NewUUID(), []byte("order 3"))
	check(publisher.Publish("orders.close", later, sooner, atOnce))

	for range 3 {
		msg := <-messages
		fmt.Println("closing", string(msg.Payload))
		msg.Ack()
	}
	check(errors.Join(publisher.Close(), subscriber.Close()))
	// Output:
	// closing order 3
	// closing order 2
	// closing order 1
}

// A Nack brings a message back after a delay. The message's context says which delivery
// this is.
func ExampleDeliveryFromContext() {
	client, stop := embedded()
	defer stop()
	publisher := must(redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, nil))
	subscriber := must(redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client:    client,
		NackDelay: func(attempt int) time.Duration { return time.Duration(attempt) * 100 * time.Millisecond },
	}, nil))
	messages := must(subscriber.Subscribe(context.Background(), "payments"))
	check(publisher.Publish("payments", message.NewMessage(watermill.NewUUID(), nil)))

	for settled := false; !settled; {
		msg := <-messages
		delivery, _ := redisdelay.DeliveryFromContext(msg.Context())
		fmt.Println("attempt", delivery.Attempt)
		if delivery.Attempt < 3 {
			msg.Nack()
			continue
		}
		settled = msg.Ack()
	}
	check(errors.Join(publisher.Close(), subscriber.Close()))
	// Output:
	// attempt 1
	// attempt 2
	// attempt 3
}
