// Watermill is the getting-started program of https://watermill.io/learn/getting-started/ on redisdelay: what its page would
// show. Each message is delayed by two seconds.
//
// REDIS_ADDR names the server; the default is redis:6379, as in docker-compose.yml. Stop it with Ctrl-C.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	addr := os.Getenv("REDIS_ADDR")
	if addr == "" {
		addr = "redis:6379"
	}
	client := redis.NewClient(&redis.Options{Addr: addr})
	logger := watermill.NewStdLogger(false, false)

	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client:        client,
		ConsumerGroup: "test_consumer_group",
	}, logger)
	if err != nil {
		panic(err)
	}
	messages, err := subscriber.Subscribe(ctx, "example.topic")
	if err != nil {
		panic(err)
	}
	go process(messages)

	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, logger)
	if err != nil {
		panic(err)
	}
	publishMessages(ctx, publisher)
	if err := subscriber.Close(); err != nil {
		panic(err)
	}
}

func publishMessages(ctx context.Context, publisher message.Publisher) {
	for {
		msg := message.NewMessage(watermill.NewUUID(), []byte("Hello, world!"))
		delay.Message(msg, delay.For(2*time.Second))

		if err := publisher.Publish("example.topic", msg); err != nil {
			panic(err)
		}

		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
}

func process(messages <-chan *message.Message) {
	for msg := range messages {
		log.Printf("received message: %s, payload: %s", msg.UUID, string(msg.Payload))

		// we need to Acknowledge that we received and processed the message,
		// otherwise, it will be resent over and over again.
		msg.Ack()
	}
}
