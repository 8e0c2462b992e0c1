// Orders is an HTTP service whose orders are closed if nobody pays in time:
//
//	POST /orders              opens an order and schedules its closing
//	POST /orders/{id}/pay     pays it and cancels the closing
//	POST /orders/{id}/snooze  gives it more time: {"for": "10m"}
//	GET  /orders/{id}         tells its state, and when it will be closed
//
// It runs until it is interrupted. Then it answers what it has begun, lets handlers finish
// and ends; what waits in Redis waits for the next start.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redisdelay/watermill-redisdelay/examples/internal/redisserver"
	"github.com/redisdelay/watermill-redisdelay/examples/orders/shop"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "where to listen")
	payWithin := flag.Duration("pay-within", 30*time.Minute, "how long an order stays open")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *addr, *payWithin); err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, addr string, payWithin time.Duration) error {
	server, err := redisserver.Start(ctx)
	if err != nil {
		return err
	}
	defer server.Stop()
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Printf("Listening on http://%s with %s.\n", listener.Addr(), server)
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	service, err := shop.New(shop.Config{Client: server.Client(), PayWithin: payWithin, Logger: logger})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	return service.Serve(ctx, listener)
}
