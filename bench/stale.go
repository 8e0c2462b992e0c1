package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// What becomes of stale messages.
const (
	staleBuried  = ours + ", stale, buried"
	staleDropped = ours + ", stale, dropped"
)

func staleBacklog() experiment {
	return experiment{
		name: "stale",
		what: "A due backlog of 1,000,000 messages and one subscription: without a time to live, and with one that is over,\n" +
			"so that no handler gets a message: it becomes a dead letter, or is dropped. A dead letter is kept, in a set\n" +
			"with its reason, so making one costs more than an ack; hence the bar of a half.",
		rounds: 1,
		contestants: []contestant{
			{ours, staleRun("")},
			{staleBuried, staleRun(redisdelay.BuryExpired)},
			{staleDropped, staleRun(redisdelay.DropExpired)},
		},
		bars: []bar{
			{reading: rate, of: staleBuried, against: []string{ours}, least: 0.5},
			{reading: rate, of: staleDropped, against: []string{ours}, least: 0.5},
			// Of some thousands of calls, the slowest is one that was interrupted: Redis shares the cores with its client.
			{reading: slowestInside, of: staleBuried, most: 20},
			{reading: slowestInside, of: staleDropped, most: 20},
		},
	}
}

// staleRun drains a backlog whose messages are stale, or fresh if nothing is to become of stale ones.
func staleRun(how redisdelay.ExpiryPolicy) func(ctx context.Context, l *lab) (sample, error) {
	return func(ctx context.Context, l *lab) (sample, error) {
		const part = 100_000
		n := l.count(1_000_000)
		for left := n; left > 0; left -= part {
			list := newMessages(min(part, left))
			if how != "" {
				for _, msg := range list {
					redisdelay.SetTTL(msg, time.Millisecond)
				}
			}
			if err := publishAll(ctx, l, topic, list); err != nil {
				return nil, err
			}
		}
		if err := errors.Join(pause(ctx, 10*time.Millisecond), l.admin.Do(ctx, "SLOWLOG", "RESET").Err()); err != nil {
			return nil, err
		}
		s, err := drainStale(ctx, l, how, n)
		if err != nil {
			return nil, err
		}
		return l.withSlowest(ctx, s)
	}
}

// drainStale drains a backlog until so many messages are acked, or found stale.
func drainStale(ctx context.Context, l *lab, how redisdelay.ExpiryPolicy, n int) (sample, error) {
	want := observe.Expired
	if how == "" {
		want = observe.Acked
	}
	var ended atomic.Int64
	all := make(chan struct{})
	subscriber, err := variant("", func(c *redisdelay.SubscriberConfig) {
		c.OnExpired = how
		c.Observer = observe.Observer{Settled: func(e observe.Settled) {
			if e.How == want && !e.Stale && ended.Add(1) == int64(n) {
				close(all)
			}
		}}
	}).subscriber(l)
	if err != nil {
		return nil, err
	}
	var c crowd
	s, err := l.throughput(ctx, nil, n, func() error {
		if err := c.join(ctx, subscriber, topic, func(msg *message.Message) { msg.Ack() }); err != nil {
			return err
		}
		select {
		case <-all:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return s, errors.Join(err, c.leave())
}
