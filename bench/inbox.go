package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/inbox"
)

const entriesRate = "entries"

func inboxDrain() experiment {
	const entries = 200_000
	return experiment{
		name: "inbox",
		what: fmt.Sprintf("An inbox of %d entries with payloads of 100 bytes and a delay of an hour, and one process that stores them:\n"+
			"entries a second.", entries),
		rounds: 2,
		contestants: []contestant{{ours, func(ctx context.Context, l *lab) (sample, error) {
			return inboxRun(ctx, l, l.count(entries))
		}}},
		bars: []bar{{reading: entriesRate, of: ours, least: 20_000}},
	}
}

func inboxRun(ctx context.Context, l *lab, count int) (sample, error) {
	client, payload := l.client(), make([]byte, 100)
	for left := count; left > 0; left -= 1000 {
		_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for range min(left, 1000) {
				p.XAdd(ctx, &redis.XAddArgs{
					Stream: "{redisdelay:inbox}:entries", Values: []any{"topic", topic, "delay_ms", 3_600_000, "payload", payload},
				})
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	i, err := inbox.New(inbox.Config{Client: client}, nil)
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended, start := make(chan error, 1), time.Now()
	go func() { ended <- i.Run(running) }()
	for status := (inbox.Status{Waiting: 1}); status.Waiting > 0; {
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return nil, err
		}
		if status, err = i.Status(ctx); err != nil {
			return nil, err
		}
	}
	took := time.Since(start).Seconds()
	stop()
	if err := <-ended; err != nil {
		return nil, err
	}
	stored, err := client.ZCard(ctx, fmt.Sprintf("{redisdelay:%s:0}:scheduled", topic)).Result()
	if err == nil && stored != int64(count) {
		err = errors.New("not every entry is stored")
	}
	return sample{{entriesRate, "/s", float64(count) / took}}, err
}
