package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

const (
	commandRate   = "commands sent"
	idleCPU       = "idle client CPU"
	claimsEach    = "claims per message"
	settlingPause = 3 * time.Second  // for connections, first claims and the like
	restingPause  = 50 * time.Second // until a subscription relies on notifications, and so claims rarely
	idleFor       = time.Minute      // two claims of each
)

func idleOne() experiment {
	return experiment{
		name: "idle",
		what: "One subscription without messages for a minute: the commands that it sends (MONITOR, without those within\n" +
			"scripts, which INFO would count; half a command a second are pings, one for all subscriptions), and what that takes.",
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
	used, sent, claims, err := whileIdle(ctx, l)
	if err := errors.Join(err, c.leave()); err != nil {
		return nil, err
	}
	seconds := used.elapsed.Seconds()
	perSecond := func(d time.Duration) float64 { return d.Seconds() * 1000 / seconds }
	return sample{
		{commandRate, "/s", sent / seconds},
		{"claims sent", "/s", claims / seconds},
		{"commands within scripts and without", "/s", used.commands / seconds},
		{idleCPU, "ms/s", perSecond(used.client)},
		{"idle Redis CPU", "ms/s", perSecond(used.redis)},
	}, nil
}

// whileIdle counts the commands and the claims that are sent in a minute, and what they take.
func whileIdle(ctx context.Context, l *lab) (used usage, sent, claims float64, err error) {
	m, err := startMonitor(ctx, l)
	if err != nil {
		return usage{}, 0, 0, err
	}
	defer m.stop()
	used, err = l.measure(ctx, func() error { return pause(ctx, l.duration(idleFor)) })
	sent, claims = m.counts()
	return used, sent, claims, err
}

func idleMany() experiment {
	return experiment{
		name: "idle50",
		what: "50 idle consumers of a group, for which one message falls due each second, 15 in all: how many claims\n" +
			"Redis gets for each message. Of these, 10 are safety polls: while messages come, each consumer polls once in\n" +
			"5 s. Without any it polls more rarely (counted before, for a minute).\n" +
			"Counted from half a second after the one call that schedules all 15; what that call wakes is\n" +
			"shown apart.",
		rounds:      2,
		contestants: []contestant{{ours, idleManyRun}},
		bars:        []bar{{reading: claimsEach, of: ours, most: 15}},
	}
}

func idleManyRun(ctx context.Context, l *lab) (sample, error) {
	const consumers, messages = 50, 15
	subscriber, err := newSubscriber(l, group, 0)
	if err != nil {
		return nil, err
	}
	t := newTally(messages)
	var c crowd
	for range consumers {
		if err := c.join(ctx, subscriber, topic, t.ack); err != nil {
			return nil, err
		}
	}
	m, err := startMonitor(ctx, l)
	if err != nil {
		return nil, err
	}
	defer m.stop()
	s, err := countClaims(ctx, l, m, t)
	return s, errors.Join(err, c.leave(), t.check())
}

func countClaims(ctx context.Context, l *lab, m *monitor, t *tally) (sample, error) {
	if err := pause(ctx, restingPause); err != nil {
		return nil, err
	}
	_, start := m.counts()
	if err := pause(ctx, idleFor); err != nil {
		return nil, err
	}
	_, before := m.counts()
	polls := (before - start) / idleFor.Seconds()

	list := newMessages(len(t.arrivals))
	for i, msg := range list {
		delay.Message(msg, delay.For(time.Duration(i)*time.Second+1500*time.Millisecond))
	}
	if err := publishAll(ctx, l, topic, list); err != nil {
		return nil, err
	}
	if err := pause(ctx, 500*time.Millisecond); err != nil {
		return nil, err
	}
	_, scheduled := m.counts()
	if err := t.wait(ctx); err != nil {
		return nil, err
	}
	if err := pause(ctx, time.Second); err != nil { // its own second
		return nil, err
	}
	_, after := m.counts()
	n := float64(len(list))
	return sample{
		{claimsEach, "", (after - scheduled) / n},
		{"polls", "/s", polls},
		{"claims upon publishing", "", scheduled - before},
		{duplicates, "", float64(t.duplicates.Load())},
	}, nil
}

const (
	subscribeTime = "time to subscribe"
	closeTime     = "time to close"
	bytesEach     = "memory of a subscription"
)

// idleTopics measures what subscriptions cost of which each has a topic: a service with many tenants.
func idleTopics(topics int) experiment {
	e := experiment{
		name: fmt.Sprint("idle", topics),
		what: fmt.Sprintf("%d new topics, to which one Subscriber subscribes from %d goroutines, without messages for a minute: what each\n"+
			"subscription takes in the process (goroutines; heap and stacks in use) and sends (MONITOR, without what is\n"+
			"within scripts), and how long it takes to subscribe to all and to close.", topics, subscribing),
		rounds:      2,
		contestants: []contestant{{ours, idleTopicsRun(topics)}},
		bars: []bar{
			{reading: goroutinesEach, of: ours, most: 4},
			{reading: bytesEach, of: ours, most: 10},
			{reading: commandsEach, of: ours, most: 0.05},
		},
	}
	if topics == mostTopics {
		e.bars = append(e.bars, bar{reading: subscribeTime, of: ours, most: 5}, bar{reading: closeTime, of: ours, most: 2})
	}
	return e
}

const (
	mostTopics  = 10_000
	subscribing = 64 // goroutines
)

func idleTopicsRun(topics int) func(ctx context.Context, l *lab) (sample, error) {
	return func(ctx context.Context, l *lab) (sample, error) {
		subscriber, err := newSubscriber(l, group, 0)
		if err != nil {
			return nil, err
		}
		if err := openPool(ctx, l); err != nil {
			return nil, err
		}
		goroutines, bytes := footprint()
		start := time.Now()
		err = subscribeAll(ctx, subscriber, topics)
		s := sample{{subscribeTime, "s", time.Since(start).Seconds()}}
		if err == nil {
			err = pause(ctx, restingPause)
		}
		used, sent, _, err2 := whileIdle(ctx, l)
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
}

// openPool opens all connections of the client's pool, which are not counted.
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

// subscribeAll subscribes to so many topics. Nobody reads the channels, since no message comes.
func subscribeAll(ctx context.Context, s *redisdelay.Subscriber, topics int) error {
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

// footprint is how many goroutines there are, and what the heap and stacks take.
func footprint() (goroutines, bytes float64) {
	for range 2 { // the second one also frees what is pooled
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(runtime.NumGoroutine()), float64(m.HeapAlloc + m.StackInuse)
}
