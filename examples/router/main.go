// Router charges payments through a gateway that fails now and then, with three
// of Watermill's middlewares:
//
//   - Retry calls the handler again, at once and in this process: for brief failures.
//   - DelayOnError gives a message that keeps failing a growing delay. It waits in
//     Redis meanwhile, where it delays no other message.
//   - PoisonQueue moves a message that can never succeed to another topic, where
//     another handler picks it up.
//
// It ends by itself, with an error if a payment did not end as it should.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/examples/internal/redisserver"
)

// deadline ends the program when messages are missing.
const deadline = 20 * time.Second

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "router:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	server, err := redisserver.Start(ctx)
	if err != nil {
		return err
	}
	defer server.Stop()
	payments := scenario()
	fmt.Printf("%d payments on %s.\n\n", len(payments), server)

	cashier := newCashier(payments)
	topic := redisserver.Topic("payments")
	publisher, router, err := newRouter(server.Client(), topic, cashier)
	if err != nil {
		return err
	}
	// The messages wait in Redis until the router subscribes.
	if err := publishAll(ctx, publisher, topic, payments); err != nil {
		return err
	}
	if err := runUntil(ctx, router, cashier.done); err != nil {
		return err
	}
	return errors.Join(publisher.Close(), cashier.check())
}

func newRouter(client redis.UniversalClient, topic string, c *cashier) (*redisdelay.Publisher, *message.Router, error) {
	logger := watermill.NewSlogLogger(slog.New(
		slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}),
	))
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, logger)
	if err != nil {
		return nil, nil, fmt.Errorf("create publisher: %w", err)
	}
	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client:        client,
		ConsumerGroup: "cashier",
		MaxInFlight:   4, // payments need not wait for each other
	}, logger)
	if err != nil {
		return nil, nil, fmt.Errorf("create subscriber: %w", err)
	}
	// The router would log each failure as an error. Here failures are the point, and the
	// cashier prints them.
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return nil, nil, fmt.Errorf("create router: %w", err)
	}
	poisonTopic := topic + ".poison"
	poison, err := middleware.PoisonQueueWithFilter(publisher, poisonTopic, isDeclined)
	if err != nil {
		return nil, nil, fmt.Errorf("create poison queue: %w", err)
	}
	router.AddConsumerHandler("charge", topic, subscriber, c.charge).AddMiddleware(middlewares(c, poison)...)
	router.AddConsumerHandler("poisoned", poisonTopic, subscriber, c.poisoned)
	return publisher, router, nil
}

// middlewares returns the charge handler's middlewares. The first is the outermost: the
// error of a handler goes through them from the last to the first.
func middlewares(c *cashier, poison message.HandlerMiddleware) []message.HandlerMiddleware {
	delayOnError := &middleware.DelayOnError{
		InitialInterval: firstDelay,
		MaxInterval:     10 * time.Second,
		Multiplier:      delayFactor,
	}
	retry := middleware.Retry{
		MaxRetries:      callsPerDelivery - 1,
		InitialInterval: 10 * time.Millisecond,
		MaxInterval:     100 * time.Millisecond,
		Multiplier:      2,
		ShouldRetry:     func(p middleware.RetryParams) bool { return !isDeclined(p.Err) },
	}
	return []message.HandlerMiddleware{
		c.report,
		// DelayOnError is outside the poison queue, which hides the errors that it handles.
		// Inside, it would delay the poisoned messages.
		delayOnError.Middleware,
		poison,
		retry.Middleware,
	}
}

func publishAll(ctx context.Context, publisher message.Publisher, topic string, payments []*payment) error {
	for _, p := range payments {
		payload, err := json.Marshal(p)
		if err != nil {
			return fmt.Errorf("encode payment %s: %w", p.ID, err)
		}
		msg := message.NewMessageWithContext(ctx, watermill.NewUUID(), payload)
		if err := publisher.Publish(topic, msg); err != nil {
			return fmt.Errorf("publish payment %s: %w", p.ID, err)
		}
	}
	return nil
}

// runUntil runs a router until done is closed, ctx ends or the deadline passes.
func runUntil(ctx context.Context, router *message.Router, done <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	closed := make(chan error, 1)
	go func() { // ends with ctx at the latest
		select {
		case <-done:
		case <-ctx.Done():
		}
		closed <- router.Close() // lets handlers finish first
	}()
	err := router.Run(ctx)
	cancel()
	return errors.Join(err, <-closed)
}
