package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

const (
	commandRate   = "commands sent"
	idleCPU       = "idle client CPU"
	settlingPause = 3 * time.Second  // for connections, first claims and the like
	restingPause  = 50 * time.Second // until a subscription relies on notifications, and claims rarely
	idleFor       = time.Minute      // two claims per subscription
)

func idleOne() experiment {
	return experiment{
		name: "idle",
		what: "One subscription without messages for a minute: the commands that it sends, and their cost. MONITOR counts the commands,\n" +
			"without those within scripts. Half a command per second is the heartbeat, which all subscriptions share.",
		rounds:      2,
		contestants: []contestant{{ours, idleRun}},
		bars: []bar{
			{reading: commandRate, of: ours, most: 0.6},
			{reading: idleCPU, of: ours, most: 1},
		},
	}
}

func idleRun(ctx context.Context, l *lab) (sample, error) {
	subscriber, err := newSubscriber(l, group, 0)
	if err != nil {
		return nil, err
	}
	t := newTally(1)
	var c crowd
	if err := c.join(ctx, subscriber, topic, t.ack); err != nil {
		return nil, err
	}
	if err := pause(ctx, restingPause); err != nil {
		return nil, err
	}
	used, sent, err := whileIdle(ctx, l)
	if err := errors.Join(err, c.leave()); err != nil {
		return nil, err
	}
	seconds := used.elapsed.Seconds()
	perSecond := func(d time.Duration) float64 { return d.Seconds() * 1000 / seconds }
	return sample{
		{commandRate, "/s", sent / seconds},
		{idleCPU, "ms/s", perSecond(used.client)},
		{"idle Redis CPU", "ms/s", perSecond(used.redis)},
	}, nil
}

// whileIdle returns the commands sent in a minute, and the resources that they use.
func whileIdle(ctx context.Context, l *lab) (used usage, sent float64, err error) {
	m, err := startMonitor(ctx, l)
	if err != nil {
		return usage{}, 0, err
	}
	defer m.stop()
	used, err = l.measure(ctx, func() error { return pause(ctx, l.duration(idleFor)) })
	return used, float64(m.sent.Load()), err
}

const (
	subscribeTime  = "time to subscribe"
	closeTime      = "time to close"
	goroutinesEach = "goroutines of a subscription"
	bytesEach      = "memory of a subscription"
	commandsEach   = "commands of a subscription"
)

// idleTopics measures the cost of subscriptions to many topics, as in a service with many tenants.
func idleTopics() experiment {
	return experiment{
		name: fmt.Sprint("idle", topics),
		what: fmt.Sprintf("One Subscriber subscribes to %d new topics from %d goroutines. There are no messages for a minute. Memory is the heap and\n"+
			"the stacks in use. MONITOR counts the commands, without those within scripts.", topics, subscribing),
		rounds:      2,
		contestants: []contestant{{ours, idleTopicsRun}},
		bars: []bar{
			{reading: goroutinesEach, of: ours, most: 4},
			{reading: bytesEach, of: ours, most: 10},
			{reading: commandsEach, of: ours, most: 0.05},
			{reading: subscribeTime, of: ours, most: 5},
			{reading: closeTime, of: ours, most: 2},
		},
	}
}

const (
	topics      = 10_000
	subscribing = 64 // goroutines
)

func idleTopicsRun(ctx context.Context, l *lab) (sample, error) {
	subscriber, err := newSubscriber(l, group, 0)
	if err != nil {
		return nil, err
	}
	if err := openPool(ctx, l); err != nil {
		return nil, err
	}
	goroutines, bytes := footprint()
	start := time.Now()
	err = subscribeAll(ctx, subscriber)
	s := sample{{subscribeTime, "s", time.Since(start).Seconds()}}
	if err == nil {
		err = pause(ctx, restingPause)
	}
	used, sent, err2 := whileIdle(ctx, l)
	idleGoroutines, idleBytes := footprint()
	start = time.Now()
	if err := errors.Join(err, err2, subscriber.Close()); err != nil { //nolint:contextcheck // it needs none
		return nil, err
	}
	return append(s,
		reading{closeTime, "s", time.Since(start).Seconds()},
		reading{goroutinesEach, "", (idleGoroutines - goroutines) / float64(topics)},
		reading{bytesEach, "kB", (idleBytes - bytes) / 1024 / float64(topics)},
		reading{commandsEach, "/s", sent / used.elapsed.Seconds() / float64(topics)},
		reading{idleCPU, "ms/s", used.client.Seconds() * 1000 / used.elapsed.Seconds()},
	), nil
}

// openPool opens all connections of the client's pool, so that they do not count.
func openPool(ctx context.Context, l *lab) error {
	client := l.common()
	errs := make([]error, 4*client.Options().PoolSize)
	var calls sync.WaitGroup
	for i := range errs {
		calls.Go(func() { errs[i] = client.Eval(ctx, "for i = 1, 100000 do end return 1", nil).Err() })
	}
	calls.Wait()
	return errors.Join(errs...)
}

// subscribeAll subscribes to all topics. No goroutine reads the channels, because no messages arrive.
func subscribeAll(ctx context.Context, s *redisdelay.Subscriber) error {
	errs := make([]error, subscribing)
	var calls sync.WaitGroup
	for from := range errs {
		calls.Go(func() {
			for n := from; n < topics && errs[from] == nil; n += subscribing {
				_, errs[from] = s.Subscribe(ctx, fmt.Sprint(topic, n))
			}
		})
	}
	calls.Wait()
	return errors.Join(errs...)
}

// footprint returns the number of goroutines, and the bytes of heap and stacks.
func footprint() (goroutines, bytes float64) {
	for range 2 { // the second run also frees pooled memory
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(runtime.NumGoroutine()), float64(m.HeapAlloc + m.StackInuse)
}
