package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

const (
	slowestScript = "slowest script of admin"
	addedLateness = "p99 more than without"
)

func operate() experiment {
	return experiment{
		name: "operate",
		what: "1,000,000 messages scheduled 24 h ahead and 10,000 dead letters in one topic, and 5,000 messages a second\n" +
			"that are published and handled in it: how late they are, in turns with nothing else and while package\n" +
			"admin lists, counts, searches, changes, copies and exports messages, one call after the other, with 20 ms\n" +
			"between them, in which the command line would start; and how long its slowest script takes. At last it\n" +
			"lists all that is scheduled, page by page: the run fails unless it shows each message exactly once.",
		rounds:      1,
		contestants: []contestant{{ours, operateRun}},
		bars: []bar{
			{reading: slowestScript, of: ours, most: 10},
			{reading: addedLateness, of: ours, most: 2},
		},
	}
}

func operateRun(ctx context.Context, l *lab) (sample, error) {
	scheduled, dead := l.count(1_000_000), l.count(10_000)
	for left := scheduled; left > 0; left -= min(left, 100_000) {
		if err := publishAll(ctx, l, topic, delayed(newMessages(min(left, 100_000)), 24*time.Hour)); err != nil {
			return nil, err
		}
	}
	if err := makeDead(ctx, l, dead); err != nil {
		return nil, err
	}
	o, err := newOperator(ctx, l)
	if err != nil {
		return nil, err
	}
	var without, with []float64
	for range 3 {
		quiet, err := o.watch(ctx, l, func(context.Context) error { return nil })
		if err != nil {
			return nil, err
		}
		busy, err := o.watch(ctx, l, o.work)
		if err != nil {
			return nil, err
		}
		without, with = append(without, quiet.get(p99)), append(with, busy.get(p99))
	}
	if _, err := o.watch(ctx, l, func(context.Context) error { return o.listAll(ctx, scheduled) }); err != nil {
		return nil, err
	}
	slowest, err := o.slowest(ctx, l)
	return sample{
		{slowestScript, "ms", slowest},
		{"p99 without", "ms", spreadOf(without).median},
		{"p99 with", "ms", spreadOf(with).median},
		{addedLateness, "ms", spreadOf(with).median - spreadOf(without).median},
		{"calls of admin", "", float64(o.calls.Load())},
	}, err
}

// makeDead makes dead letters of the group.
func makeDead(ctx context.Context, l *lab, n int) error {
	if err := publishAll(ctx, l, topic, newMessages(n)); err != nil {
		return err
	}
	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client: l.common(), ConsumerGroup: group, MaxInFlight: inFlight, MaxDeliveries: 1,
	}, nil)
	if err != nil {
		return err
	}
	t := newTally(n)
	var c crowd
	if err := c.join(ctx, subscriber, topic, func(msg *message.Message) {
		t.add(msg.Payload)
		msg.Nack()
	}); err != nil {
		return err
	}
	return errors.Join(t.wait(ctx), c.leave(), t.check())
}

// slowest is how long the operator's slowest call took in Redis, in ms.
func (o *operator) slowest(ctx context.Context, l *lab) (float64, error) {
	logged, err := l.admin.SlowLogGet(ctx, -1).Result()
	longest := time.Duration(0)
	for _, call := range logged {
		if call.ClientName != operatorName {
			continue
		}
		if call.Duration > longest {
			longest = call.Duration
		}
		if call.Duration > 5*time.Millisecond {
			fmt.Fprintf(os.Stderr, "slow: %v %.60q\n", call.Duration, call.Args)
		}
	}
	return float64(longest.Microseconds()) / 1000, err
}

// watch measures how late messages are for some seconds, while the operator works. The
// context of work ends with the messages.
func (o *operator) watch(ctx context.Context, l *lab, work func(ctx context.Context) error) (sample, error) {
	const each, every = 25, 5 * time.Millisecond // 5,000 a second
	n := l.count(40_000)
	d := &delays{tally: newTally(n), earliest: make([]time.Time, n)}
	subscriber, err := newSubscriber(l, group, inFlight)
	if err != nil {
		return nil, err
	}
	publisher, err := redisDelay().publisher(l)
	if err != nil {
		return nil, err
	}
	var c crowd
	if err := c.join(ctx, subscriber, topic, d.receive); err != nil {
		return nil, err
	}
	working, stop := context.WithCancel(ctx)
	worked := make(chan error, 1)
	go func() { worked <- work(working) }() // watch waits for it
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	list := newMessages(n)
	for from := 0; from < n && err == nil; from += each {
		for i := from; i < from+each; i++ {
			by := 50*time.Millisecond + time.Duration(i%100)*time.Millisecond
			d.earliest[i] = time.Now().Add(by)
			delay.Message(list[i], delay.For(by))
		}
		err = publisher.Publish(topic, list[from:from+each]...)
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
	err = errors.Join(err, d.tally.wait(ctx))
	stop()
	if err := errors.Join(err, <-worked, publisher.Close(), c.leave(), d.tally.check(), d.err); err != nil {
		return nil, err
	}
	return d.sample(), nil
}
