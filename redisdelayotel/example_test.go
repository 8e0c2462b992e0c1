package redisdelayotel_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	redisdelayotel "github.com/redisdelay/watermill-redisdelay/redisdelayotel"
)

// A Router whose handlings are traced. A real program exports its spans, and mostly sets
// OpenTelemetry's global providers instead of Config.
func Example() {
	server := must(miniredis.Run())
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	recorder := tracetest.NewSpanRecorder()
	traces := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))

	telemetry := must(redisdelayotel.New(redisdelayotel.Config{TracerProvider: traces}))
	router := must(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))
	telemetry.AddTo(router)
	subscriber := must(redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client: client, Observer: telemetry.Observer(),
	}, nil))
	handled := make(chan struct{})
	router.AddConsumerHandler("bill", "orders", subscriber, func(*message.Message) error {
		close(handled)
		return nil
	})
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	<-router.Running()

	publisher := telemetry.Publisher(must(redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, nil)))
	check(publisher.Publish("orders", message.NewMessage(watermill.NewUUID(), nil)))
	<-handled
	check(errors.Join(router.Close(), <-ended, publisher.Close(), client.Close())) // the ack has reached Redis
	for _, span := range recorder.Ended() {
		fmt.Printf("%s, %d links\n", span.Name(), len(span.Links()))
	}
	// Unordered output:
	// send orders, 0 links
	// process orders, 1 links
	// ack orders, 0 links
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
