package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

const (
	goodOnes   = "good ones done"
	deliveries = "deliveries of the bad one"
)

func poison() experiment {
	return experiment{
		name:        "poison",
		what:        "One message that is always nacked with 100 good ones behind it, one subscription, for 10 s.",
		rounds:      2,
		contestants: []contestant{{ours, poisonRun}},
		bars: []bar{
			{reading: goodOnes, of: ours, most: 1},
			{reading: deliveries, of: ours, most: 20},
		},
	}
}

func poisonRun(ctx context.Context, l *lab) (sample, error) {
	const good = 100
	list := newMessages(good + 1)
	bad := list[good] // this number is not in the tally of the good ones
	if err := publishAll(ctx, l, topic, append([]*message.Message{bad}, list[:good]...)); err != nil {
		return nil, err
	}
	subscriber, err := newSubscriber(l, group, 0)
	if err != nil {
		return nil, err
	}
	t := newTally(good)
	var nacked atomic.Int64
	start := time.Now()
	var c crowd
	if err := c.join(ctx, subscriber, topic, func(msg *message.Message) {
		if msg.UUID == bad.UUID {
			nacked.Add(1)
			msg.Nack()
			return
		}
		t.ack(msg)
	}); err != nil {
		return nil, err
	}
	err = t.wait(ctx)
	took := time.Since(start)
	err = errors.Join(err, pause(ctx, l.duration(10*time.Second)-took), c.leave(), t.check())
	return sample{
		{goodOnes, "s", took.Seconds()},
		{deliveries, "", float64(nacked.Load())},
		{duplicates, "", float64(t.duplicates.Load())},
	}, err
}

const overIdeal = "time / ideal"

func slow() experiment {
	return experiment{
		name:        "slow",
		what:        "Two subscribers that take 100 ms for each message share a backlog of 200; ideal is 10 s.",
		rounds:      2,
		contestants: []contestant{{ours, slowRun}},
		bars:        []bar{{reading: overIdeal, of: ours, most: 1.15}},
	}
}

func slowRun(ctx context.Context, l *lab) (sample, error) {
	const work, subscribers = 100 * time.Millisecond, 2
	n := l.count(200)
	if err := publishAll(ctx, l, topic, newMessages(n)); err != nil {
		return nil, err
	}
	t := newTally(n)
	var c crowd
	start := time.Now()
	for range subscribers {
		subscriber, err := newSubscriber(l, group, 0)
		if err != nil {
			return nil, err
		}
		if err := c.join(ctx, subscriber, topic, func(msg *message.Message) {
			_ = pause(ctx, work) // ends early only when the run fails
			t.ack(msg)
		}); err != nil {
			return nil, err
		}
	}
	err := t.wait(ctx)
	took := time.Since(start)
	ideal := work * time.Duration(n) / subscribers
	return sample{
		{overIdeal, "", took.Seconds() / ideal.Seconds()},
		{"time", "s", took.Seconds()},
		{duplicates, "", float64(t.duplicates.Load())},
	}, errors.Join(err, c.leave(), t.check())
}
