package main

import (
	"context"
	"errors"
	"fmt"
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
