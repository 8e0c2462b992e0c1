package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redisdelay/watermill-redisdelay/periodic"
)

const (
	applyTook   = "Apply"
	applySame   = "Apply again"
	periodicCPU = "Redis CPU for ticks"
)

func periodicMany() experiment {
	const schedules = 10_000
	return experiment{
		name: "periodic",
		what: fmt.Sprintf("Apply of %d schedules, one for each of as many tenants and 100 topics, on an empty Redis and again, and then\n"+
			"one process that runs them, for 20 s in which none is due: the commands that it sends.", schedules),
		rounds: 2,
		contestants: []contestant{{ours, func(ctx context.Context, l *lab) (sample, error) {
			return periodicRun(ctx, l, schedules)
		}}},
		bars: []bar{
			{reading: applyTook, of: ours, most: 5},
			{reading: applySame, of: ours, most: 5},
			{reading: commandRate, of: ours, most: 2},
		},
	}
}

func periodicRun(ctx context.Context, l *lab, count int) (sample, error) {
	p, err := periodic.New(periodic.Config{Client: l.client()}, nil)
	if err != nil {
		return nil, err
	}
	schedules := make([]periodic.Schedule, count)
	for i := range schedules {
		schedules[i] = periodic.Schedule{
			ID: fmt.Sprintf("tenant-%d", i), Topic: fmt.Sprintf("%s-%d", topic, i%100), Cron: "0 7 1 1 *", Payload: make([]byte, 100),
		}
	}
	apply := func() (float64, error) {
		start := time.Now()
		_, err := p.Apply(ctx, "bench", 1, schedules)
		return time.Since(start).Seconds(), err
	}
	first, err := apply()
	if err != nil {
		return nil, err
	}
	again, err := apply()
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- p.Run(running) }()
	if err := pause(ctx, settlingPause); err != nil {
		return nil, err
	}
	used, sent, _, err := whileIdle(ctx, l)
	stop()
	if err := errors.Join(err, <-ended); err != nil {
		return nil, err
	}
	return sample{
		{applyTook, "s", first},
		{applySame, "s", again},
		{commandRate, "/s", sent / used.elapsed.Seconds()},
		{periodicCPU, "ms/s", used.redis.Seconds() * 1000 / used.elapsed.Seconds()},
	}, nil
}

func periodicLate() experiment {
	return experiment{
		name: "periodic.late",
		what: "100 schedules for every second, in one process that runs and consumes them, for 20 s: how late their ticks,\n" +
			"100 at a time, reach their handlers.",
		rounds:      3,
		contestants: []contestant{{ours, periodicLateRun}},
		bars:        []bar{{reading: p99, of: ours, most: 5}},
	}
}

func periodicLateRun(ctx context.Context, l *lab) (sample, error) {
	p, err := periodic.New(periodic.Config{Client: l.client()}, nil)
	if err != nil {
		return nil, err
	}
	subscriber, err := newSubscriber(l, group, 128)
	if err != nil {
		return nil, err
	}
	var schedules []periodic.Schedule
	for i := range 100 {
		schedules = append(schedules, periodic.Schedule{ID: fmt.Sprint(i), Topic: topic, Cron: "@every 1s"})
	}
	if _, err := p.Apply(ctx, "bench", 1, schedules); err != nil {
		return nil, err
	}
	messages, err := subscriber.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- p.Run(running) }()
	var late []float64 // ms
	over := time.After(settlingPause + l.duration(20*time.Second))
	for from := time.Now().Add(settlingPause); ; {
		select {
		case msg := <-messages:
			if tick, is := periodic.TickOf(msg); is && time.Now().After(from) {
				late = append(late, time.Since(tick.Nominal).Seconds()*1000)
			}
			msg.Ack()
			continue
		case <-over:
		}
		break
	}
	stop()
	if err := errors.Join(subscriber.Close(), <-ended); err != nil { //nolint:contextcheck // it has a timeout of its own
		return nil, err
	}
	if len(late) < 1000 {
		return nil, fmt.Errorf("%d ticks have come", len(late))
	}
	slices.Sort(late)
	return sample{{"p50", "ms", late[len(late)/2]}, {p99, "ms", late[len(late)*99/100]}, {"ticks", "", float64(len(late))}}, nil
}
