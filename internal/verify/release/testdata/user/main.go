// A program of a user, which publishes and receives a message and uses the modules for metrics and traces.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/observe"
	"github.com/redisdelay/watermill-redisdelay/redisdelayotel"
	"github.com/redisdelay/watermill-redisdelay/redisdelayprom"
)

func main() {
	server := must(miniredis.Run())
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	metrics := must(redisdelayprom.New(redisdelayprom.Config{}))
	prometheus.MustRegister(metrics)
	telemetry := must(redisdelayotel.New(redisdelayotel.Config{}))

	subscriber := must(redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client: client, Observer: observe.Join(metrics.Observer(), telemetry.Observer()),
	}, nil))
	messages := must(subscriber.Subscribe(context.Background(), "orders"))
	publisher := telemetry.Publisher(must(redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, nil)))
	if err := publisher.Publish("orders", message.NewMessage("", []byte("order 42"))); err != nil {
		log.Fatal(err)
	}
	received := <-messages
	received.Ack()
	fmt.Println("received", string(received.Payload))
	if err := subscriber.Close(); err != nil {
		log.Fatal(err)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
