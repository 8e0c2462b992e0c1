// Relay gives delays to publishers of brokers that have none:
//
//	go run ./examples/relay -broker gochannel
//	go run ./examples/relay -broker redisstream
//
// Guests of a hotel get a confirmation at once and a reminder later. Both go through the same
// publisher to the same broker, whose subscriber knows nothing of delays. Reminders wait in
// Redis until a relay publishes them. Only broker.go knows which broker it is.
//
// It needs nothing but Go: without REDIS_ADDR, Redis runs inside the program. It ends by
// itself, with an error if a message came early, twice or not at all.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/examples/internal/redisserver"
	"github.com/redisdelay/watermill-redisdelay/relay"
)

// deadline ends the program when messages are missing.
const deadline = 15 * time.Second

func main() {
	name := flag.String("broker", "redisstream", "where messages go: gochannel or redisstream")
	flag.Parse()
	if err := run(*name); err != nil {
		fmt.Fprintln(os.Stderr, "relay:", err)
		os.Exit(1)
	}
}

func run(name string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	server, err := redisserver.Start(ctx)
	if err != nil {
		return err
	}
	defer server.Stop()
	logger := watermill.NewSlogLogger(slog.New(
		slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}),
	))
	client := server.Client()
	broker, err := newBroker(name, client, server, logger)
	if err != nil {
		return err
	}
	hotel := newHotel(redisserver.Topic("mails"))
	publisher, stopRelay, err := withDelays(ctx, client, broker, hotel.topic, logger)
	if err != nil {
		return err
	}
	fmt.Printf("%d guests; mails by %s, reminders on %s.\n%s\n\n", len(guests()), name, server, broker.remark)

	err = hotel.run(ctx, publisher, broker.subscriber)
	// The relay publishes to the broker, so it ends first.
	return errors.Join(err, stopRelay(), publisher.Close(), broker.subscriber.Close())
}

// withDelays returns a publisher that adds delays to a broker, and runs a relay. In
// production, the relay is often a program of its own, in two processes or more.
func withDelays(
	ctx context.Context, client redis.UniversalClient, b broker, topic string, logger watermill.LoggerAdapter,
) (publisher *relay.Publisher, stop func() error, err error) {
	delayed, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, logger)
	if err != nil {
		return nil, nil, fmt.Errorf("create publisher of delayed messages: %w", err)
	}
	publisher, err = relay.NewPublisher(relay.PublisherConfig{Target: b.publisher, Delayed: delayed})
	if err != nil {
		return nil, nil, fmt.Errorf("create publisher: %w", err)
	}
	b.relay.Client, b.relay.Topics = client, []string{topic}
	r, err := relay.New(b.relay, logger)
	if err != nil {
		return nil, nil, fmt.Errorf("create relay: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }() // ends with stop
	stop = func() error {
		cancel()
		return <-ended
	}
	return publisher, stop, nil
}
