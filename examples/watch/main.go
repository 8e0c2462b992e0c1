// Watch is the service of the example orders, to be watched: it serves /metrics for
// Prometheus, and with -trace writes its traces to the standard output. With -load it has
// something to show: it opens orders by itself, pays some of them, and some closings fail.
//
// It is a module of its own, so that the library does not depend on what watches it. Start it
// in its directory, with go run . -load 20 -pay-within 2s.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redisdelay/watermill-redisdelay/examples/internal/redisserver"
)

type options struct {
	addr      string
	payWithin time.Duration
	load      float64   // orders a second
	traces    io.Writer // nil: none
}

// parse reads the flags. It ends the process if they are wrong.
func parse(args []string) options {
	var o options
	flags := flag.NewFlagSet("watch", flag.ExitOnError)
	flags.StringVar(&o.addr, "addr", "127.0.0.1:8080", "where to listen")
	flags.DurationVar(&o.payWithin, "pay-within", 30*time.Minute, "how long an order stays open")
	flags.Float64Var(&o.load, "load", 0, "how many orders to open each second")
	trace := flags.Bool("trace", false, "write traces to the standard output")
	_ = flags.Parse(args) // has ended the process
	if *trace {
		o.traces = os.Stdout
	}
	return o
}

func main() {
	o := parse(os.Args[1:])
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "watch:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	server, err := redisserver.Start(ctx)
	if err != nil {
		return err
	}
	defer server.Stop()
	listener, err := net.Listen("tcp", o.addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "Listening on http://%s with %s; see /dashboard/ and /metrics.\n", listener.Addr(), server)
	w, err := newWatched(server.Client(), o, slog.New(slog.NewTextHandler(os.Stderr, nil))) //nolint:contextcheck // the dashboard ends with Close
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	return w.serve(ctx, listener)
}
