// Periodic is a service in two instances whose schedules come once each: a heartbeat every second, a sync of prices every two
// seconds with messages that a function makes, and a report on Mondays at seven in Berlin, which it triggers by hand.
//
// Each instance declares the schedules when it starts, stores their next ticks, and handles ticks with a Router.
//
// It needs nothing but Go: without REDIS_ADDR, Redis runs inside the program. It ends by itself, with an error if a tick
// came twice or not at all.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/examples/internal/redisserver"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

const (
	// prefix keeps the schedules apart from those of others on a lasting server. Each run has the same ones.
	prefix = "redisdelay-example-periodic"

	// owner declares the schedules.
	owner = "prices"

	// deadline ends the program when ticks are missing.
	deadline = 20 * time.Second
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "periodic:", err)
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
	fmt.Printf("Two instances on %s.\n\n", server)

	// A real service has the number of its build here, so that an older instance changes nothing.
	version := time.Now().UnixMilli()
	ticks := newTicks(time.Now())
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 2)
	var schedules *periodic.Periodic
	for name := range 2 {
		if schedules, err = declare(ctx, server.Client(), version); err != nil {
			return err
		}
		router, err := newRouter(server.Client(), name+1, ticks)
		if err != nil {
			return err
		}
		go func(schedules *periodic.Periodic) { ended <- instance(working, schedules, router) }(schedules) // ends with cancel
	}
	err = errors.Join(show(ctx, schedules), schedules.Trigger(ctx, "report-eu"))
	if err == nil {
		err = ticks.wait(ctx)
	}
	cancel()
	err = errors.Join(err, <-ended, <-ended)
	_, removed := schedules.Apply(ctx, owner, version+1, nil) // the service is no more
	return errors.Join(err, removed)
}

// declare declares the schedules of the service.
func declare(ctx context.Context, client redis.UniversalClient, version int64) (*periodic.Periodic, error) {
	schedules, err := periodic.New(periodic.Config{Client: client, Prefix: prefix}, logger())
	if err != nil {
		return nil, err
	}
	_, err = schedules.Apply(ctx, owner, version, []periodic.Schedule{
		{ID: "heartbeat", Topic: "heartbeats", Cron: "@every 1s", CatchUp: periodic.CatchUpNone},
		{
			ID: "price-sync", Topic: "syncs", Cron: "@every 2s", Offset: 500 * time.Millisecond,
			Payload: []byte("prices"),
			Overlap: periodic.OverlapSkip, // one sync at a time, and none if the next is due
		},
		{ID: "report-eu", Topic: "reports", Cron: "0 7 * * 1", Zone: "Europe/Berlin", Payload: []byte("sales of the week")},
	})
	return schedules, err
}

// show prints the schedules.
func show(ctx context.Context, schedules *periodic.Periodic) error {
	list, err := schedules.List(ctx, 1)
	for _, s := range list {
		fmt.Printf("%-10s  %s; %d ticks stored ahead", s.ID, s.Words, s.Stored)
		if len(s.Next) > 0 { // a schedule that is paused has none
			fmt.Printf(", the next for %s", s.Next[0].Format("Mon 15:04:05 MST"))
		}
		fmt.Println()
	}
	fmt.Println()
	return err
}

// instance stores and handles ticks until ctx ends.
func instance(ctx context.Context, schedules *periodic.Periodic, router *message.Router) error {
	stored := make(chan error, 1)
	go func() { stored <- schedules.Run(ctx) }()
	return errors.Join(router.Run(ctx), <-stored)
}

func newRouter(client redis.UniversalClient, instance int, t *ticks) (*message.Router, error) {
	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: client, Prefix: prefix}, logger())
	if err != nil {
		return nil, fmt.Errorf("create subscriber: %w", err)
	}
	router, err := message.NewRouter(message.RouterConfig{}, logger())
	if err != nil {
		return nil, fmt.Errorf("create router: %w", err)
	}
	for _, topic := range []string{"heartbeats", "syncs", "reports"} {
		router.AddConsumerHandler(topic, topic, subscriber, func(msg *message.Message) error { return t.handle(instance, msg) })
	}
	return router, nil
}

func logger() watermill.LoggerAdapter {
	return watermill.NewSlogLogger(slog.New(
		slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}),
	))
}
