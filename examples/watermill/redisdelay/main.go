// Redisdelay publishes a message every second, and receives each two seconds after it was published. It is in the form
// of Watermill's own getting-started examples: see docs/inside/upstream.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

const topic = "example.topic"

func main() {
	addr := os.Getenv("REDIS_ADDR")
	if addr == "" {
		addr = "redis:6379" // as docker-compose.yml calls it
	}
	if err := run(context.Background(), addr); err != nil {
		log.Fatal(err)
	}
}

// run goes on until the context ends.
func run(ctx context.Context, addr string) error {
	client := redis.NewClient(&redis.Options{Addr: addr})
	logger := watermill.NewStdLogger(false, false)

	subscriber, err := redisdelay.NewSubscriber(
		redisdelay.SubscriberConfig{Client: client, ConsumerGroup: "example_group"},
		logger,
	)
	if err != nil {
		return err
	}
	messages, err := subscriber.Subscribe(ctx, topic)
	if err != nil {
		return err
	}
	go process(messages) // ends with the subscription

	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, logger)
	if err != nil {
		return err
	}
	if err := publishMessages(ctx, publisher); err != nil {
		return err
	}
	return errors.Join(publisher.Close(), subscriber.Close(), client.Close()) //nolint:contextcheck // ctx has ended
}

func publishMessages(ctx context.Context, publisher message.Publisher) error {
	everySecond := time.NewTicker(time.Second)
	defer everySecond.Stop()
	for {
		msg := message.NewMessage(watermill.NewUUID(), []byte("Hello, world!"))
		delay.Message(msg, delay.For(2*time.Second))
		if err := publisher.Publish(topic, msg); err != nil {
			return err
		}
		log.Printf("published message: %s", msg.UUID)
		select {
		case <-everySecond.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func process(messages <-chan *message.Message) {
	for msg := range messages {
		log.Printf("received message: %s, payload: %s", msg.UUID, msg.Payload)

		// Without an ack, the message is redelivered.
		msg.Ack()
	}
}
