// Swap runs the same router and handlers on two Pub/Subs:
//
//	go run ./examples/swap -backend redisstream
//	go run ./examples/swap -backend redisdelay
//
// Only the constructors in backend.go differ. Both deliver each message; only redisdelay
// waits for the delays that the messages ask for.
//
// It ends by itself, with an error if a message did not arrive.
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

	"github.com/redisdelay/watermill-redisdelay/examples/internal/redisserver"
)

// deadline ends the program when messages are missing.
const deadline = 15 * time.Second

func main() {
	name := flag.String("backend", "redisdelay", "Pub/Sub to use: redisdelay or redisstream")
	flag.Parse()
	if err := run(*name); err != nil {
		fmt.Fprintln(os.Stderr, "swap:", err)
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
	backend, err := newBackend(name, server, logger)
	if err != nil {
		return err
	}
	orders := sampleOrders()
	fmt.Printf("%d orders over %s, on %s.\n%s\n\n", len(orders), name, server, backend.remark)

	shop := newShop(backend, len(orders))
	router, err := shop.newRouter(backend, logger)
	if err != nil {
		return err
	}
	running := make(chan error, 1)
	go func() { running <- router.Run(ctx) }() // ends with Close

	err = shop.sell(ctx, orders)
	if err == nil {
		err = shop.wait(ctx)
	}
	// The router closes the subscriber, but does not wait for it.
	return errors.Join(err, router.Close(), <-running, backend.subscriber.Close(), backend.publisher.Close())
}
