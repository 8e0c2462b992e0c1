// Quickstart is a shop that closes orders that are not paid in time.
//
// Each order publishes a message to close it, delayed until its time to pay is over. A
// payment cancels the message. The other messages are delivered when they are due, and the
// program prints how late that was.
//
// It needs nothing but Go: without REDIS_ADDR, Redis runs inside the program. It ends by
// itself, with an error if a message came early or not at all.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/examples/internal/redisserver"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	orders, err := readOrders()
	if err != nil {
		return err
	}
	server, err := redisserver.Start(ctx)
	if err != nil {
		return err
	}
	defer server.Stop()
	fmt.Printf("%d orders on %s.\n\n", len(orders), server)

	shop, err := newShop(server.Client(), len(orders))
	if err != nil {
		return err
	}
	messages, err := shop.subscriber.Subscribe(ctx, shop.topic)
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	closing := make(chan struct{})
	go func() { // ends with messages, which subscriber.Close closes
		defer close(closing)
		shop.closeOrders(messages)
	}()

	err = shop.takeOrders(ctx, orders)
	err = errors.Join(err, shop.subscriber.Close(), shop.publisher.Close())
	<-closing
	if err != nil {
		return err
	}
	return shop.book.printSummary()
}

// newShop returns a shop that expects a number of orders. The client is an
// ordinary one of go-redis; neither publisher nor subscriber closes it.
func newShop(client redis.UniversalClient, orders int) (*shop, error) {
	logger := watermill.NewSlogLogger(slog.New(
		slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}),
	))
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, logger)
	if err != nil {
		return nil, fmt.Errorf("create publisher: %w", err)
	}
	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client:        client,
		ConsumerGroup: "shop",
	}, logger)
	if err != nil {
		return nil, fmt.Errorf("create subscriber: %w", err)
	}
	return &shop{
		client:     client,
		publisher:  publisher,
		subscriber: subscriber,
		topic:      redisserver.Topic("orders.close"),
		book:       newBook(orders),
		logger:     logger,
	}, nil
}
