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
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redisdelay/watermill-redisdelay/examples/internal/redisserver"
)

// graceful is how long the service may take to end.
const graceful = 10 * time.Second

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
	s, err := newService(server.Client(), "order-closings", payWithin, logger)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	return s.serve(ctx, listener)
}

// serve answers requests and closes orders until ctx ends.
func (s *service) serve(ctx context.Context, listener net.Listener) error {
	web := &http.Server{Handler: s.routes(), ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 2)
	go func() { ended <- web.Serve(listener) }()
	go func() { ended <- s.router.Run(context.WithoutCancel(ctx)) }() // Close ends it, so handlers finish
	var failed error
	select {
	case <-ctx.Done():
	case failed = <-ended:
	}
	// Requests come first: they publish and cancel.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), graceful)
	defer cancel()
	err := errors.Join(failed, web.Shutdown(ctx), s.router.Close(), s.publisher.Close()) //nolint:contextcheck // Close has a timeout of its own
	for waits := cap(ended) - len(ended); waits > 0 && failed == nil; waits-- {
		if end := <-ended; !errors.Is(end, http.ErrServerClosed) {
			err = errors.Join(err, end)
		}
	}
	return err
}
