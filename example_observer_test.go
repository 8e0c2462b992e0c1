package redisdelay_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// An observer that counts the messages that handlers have acked.
func ExampleSubscriberConfig_observer() {
	server, err := miniredis.Run() // stands for your Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()

	var acked atomic.Int64
	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client: client,
		Observer: observe.Observer{
			Settled: func(s observe.Settled) {
				if s.How == observe.Acked {
					acked.Add(1)
				}
			},
		},
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	messages, err := subscriber.Subscribe(context.Background(), "orders")
	if err != nil {
		log.Fatal(err)
	}
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, nil)
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		if err := publisher.Publish("orders", message.NewMessage(watermill.NewUUID(), nil)); err != nil {
			log.Fatal(err)
		}
		(<-messages).Ack()
	}
	if err := errors.Join(publisher.Close(), subscriber.Close()); err != nil { // Close waits for acks
		log.Fatal(err)
	}
	fmt.Println("acked", acked.Load())
	// Output: acked 3
}
