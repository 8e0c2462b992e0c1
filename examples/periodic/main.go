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
	"sync"
	"time"

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

func main() { redisserver.Main(deadline, run) }

func run(ctx context.Context, server *redisserver.Server) error {
	fmt.Printf("Two instances on %s.\n\n", server)

	// A real service has the number of its build here, so that an older instance changes nothing.
	version := time.Now().UnixMilli()
	ticks := &ticks{since: time.Now(), done: make(chan struct{}), times: map[string]int{}, of: map[string]int{}}
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 2)
	var schedules *periodic.Scheduler
	var err error
	for name := range 2 {
		if schedules, err = declare(ctx, server.Client(), version); err != nil {
			return err
		}
		router, err := newRouter(server.Client(), name+1, ticks)
		if err != nil {
			return err
		}
		go func(schedules *periodic.Scheduler) { ended <- instance(working, schedules, router) }(schedules) // ends with cancel
	}
	err = errors.Join(show(ctx, schedules), schedules.Trigger(ctx, "report-eu"))
	if err == nil {
		err = ticks.wait(ctx)
	}
	cancel()
	err = errors.Join(err, <-ended, <-ended)
	_, removed := schedules.Apply(context.WithoutCancel(ctx), owner, version+1, nil) // the service is no more
	return errors.Join(err, removed)
}

// declare declares the schedules of the service.
func declare(ctx context.Context, client redis.UniversalClient, version int64) (*periodic.Scheduler, error) {
	schedules, err := periodic.New(periodic.Config{Client: client, Prefix: prefix}, redisserver.Logger())
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
func show(ctx context.Context, schedules *periodic.Scheduler) error {
	list, err := schedules.List(ctx, 1)
	for _, s := range list {
		fmt.Printf("%-10s  %s; %d ticks stored ahead", s.ID, s.Description, s.Stored)
		if len(s.Next) > 0 { // a schedule that is paused has none
			fmt.Printf(", the next for %s", s.Next[0].Format("Mon 15:04:05 MST"))
		}
		fmt.Println()
	}
	fmt.Println()
	return err
}

// instance stores and handles ticks until ctx ends.
func instance(ctx context.Context, schedules *periodic.Scheduler, router *message.Router) error {
	stored := make(chan error, 1)
	go func() { stored <- schedules.Run(ctx) }()
	return errors.Join(router.Run(ctx), <-stored)
}

func newRouter(client redis.UniversalClient, instance int, t *ticks) (*message.Router, error) {
	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: client, Prefix: prefix}, redisserver.Logger())
	if err != nil {
		return nil, fmt.Errorf("create subscriber: %w", err)
	}
	router, err := message.NewRouter(message.RouterConfig{}, redisserver.Logger())
	if err != nil {
		return nil, fmt.Errorf("create router: %w", err)
	}
	for _, topic := range []string{"heartbeats", "syncs", "reports"} {
		router.AddConsumerHandler(topic, topic, subscriber, func(msg *message.Message) error { return t.handle(instance, msg) })
	}
	return router, nil
}

// wanted is how many ticks of each schedule the program waits for.
var wanted = map[string]int{"heartbeat": 4, "price-sync": 2, "report-eu": 1}

// ticks are those that have come. It is safe for concurrent use.
type ticks struct {
	since time.Time     // what is older is of an earlier run
	done  chan struct{} // closed when all have come

	mu    sync.Mutex
	times map[string]int // guarded by mu; how often each tick has come
	of    map[string]int // guarded by mu; how many have come of each schedule
}

// handle is the handler of all topics.
func (t *ticks) handle(instance int, msg *message.Message) error {
	tick, ok := periodic.TickOf(msg)
	if !ok || tick.Nominal.Before(t.since) {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Printf("instance %d: %s  %s\n", instance, tick, msg.Payload)
	before := t.complete()
	t.times[tick.String()]++
	t.of[tick.Schedule]++
	if !before && t.complete() {
		close(t.done)
	}
	return nil
}

// complete reports whether all have come. The caller holds mu.
func (t *ticks) complete() bool {
	for schedule, n := range wanted {
		if t.of[schedule] < n {
			return false
		}
	}
	return true
}

// wait waits until all have come, and returns an error if one is missing, or has come twice.
func (t *ticks) wait(ctx context.Context) (err error) {
	select {
	case <-t.done:
	case <-ctx.Done():
		err = fmt.Errorf("ticks are missing: %w", ctx.Err())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for tick, n := range t.times {
		if n > 1 {
			err = errors.Join(err, fmt.Errorf("the tick %s has come %d times", tick, n))
		}
	}
	return err
}
