package main

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

const (
	publishRatio = "publish rate, ratio"
	claimRatio   = "claim rate, ratio"
)

func million() experiment {
	return experiment{
		name: "million",
		what: "1,000,000 messages scheduled 24 h ahead in a topic. Then 100,000 due messages are published to it, 500 a\n" +
			"call, and drained, in turns with an empty topic; medians of nine turns. The floor shows how much of the\n" +
			"difference is Redis's own: larger structures miss the processor's caches more often.",
		rounds: 1,
		contestants: []contestant{
			{ours, millionRun(ourFilling())},
			{"overlapped floor", millionRun(filling{
				publish: publishFloorAll,
				drain: func(ctx context.Context, l *lab, topic string, t *tally) (sample, error) {
					return newFloor(l.client(), topic).drain(ctx, l, floor.overlapped, t)
				},
			})},
		},
		bars: []bar{
			{reading: publishRatio, of: ours, least: 0.9},
			{reading: claimRatio, of: ours, least: 0.9},
			{reading: publishRatio, of: "overlapped floor"},
			{reading: claimRatio, of: "overlapped floor"},
		},
	}
}

// filling is how a contestant fills and drains topics.
type filling struct {
	publish func(ctx context.Context, l *lab, topic string, messages []*message.Message, delay time.Duration) error
	drain   func(ctx context.Context, l *lab, topic string, t *tally) (sample, error)
}

func ourFilling() filling {
	return filling{
		publish: func(ctx context.Context, l *lab, topic string, messages []*message.Message, delay time.Duration) error {
			return publishAll(ctx, l, topic, delayed(messages, delay))
		},
		drain: drainTopic,
	}
}

func millionRun(f filling) func(ctx context.Context, l *lab) (sample, error) {
	return func(ctx context.Context, l *lab) (sample, error) {
		const part = 100_000
		loading := time.Now()
		total := l.count(1_000_000)
		for left := total; left > 0; left -= part {
			if err := f.publish(ctx, l, "full", newMessages(min(part, left)), 24*time.Hour); err != nil {
				return nil, err
			}
		}
		loadRate := float64(total) / time.Since(loading).Seconds()
		s, err := f.compare(ctx, "topic", side{l, "empty"}, side{l, "full"})
		return append(sample{{"loading, with making the messages", "msg/s", loadRate}}, s...), err
	}
}

// side is a topic somewhere.
type side struct {
	lab   *lab
	topic string
}

// compare publishes to an empty and to a full topic or server, and drains it, in turns.
func (f filling) compare(ctx context.Context, what string, empty, full side) (sample, error) {
	const turns = 9
	var publishRates, drainRates [2][]float64 // of the empty and of the full one
	var publishRatios, drainRatios []float64
	sides := []side{empty, full}
	for turn := range turns {
		for i := range sides {
			i = (i + turn) % 2 // the order alternates
			at := sides[i]
			published, drained, err := f.publishThenDrain(ctx, at.lab, at.topic, at.lab.count(backlog))
			if err != nil {
				return nil, err
			}
			publishRates[i] = append(publishRates[i], published)
			drainRates[i] = append(drainRates[i], drained)
		}
		publishRatios = append(publishRatios, publishRates[1][turn]/publishRates[0][turn])
		drainRatios = append(drainRatios, drainRates[1][turn]/drainRates[0][turn])
	}
	return sample{
		{"publish, empty " + what, "msg/s", spreadOf(publishRates[0]).median},
		{"publish, full " + what, "msg/s", spreadOf(publishRates[1]).median},
		{"drain, empty " + what, "msg/s", spreadOf(drainRates[0]).median},
		{"drain, full " + what, "msg/s", spreadOf(drainRates[1]).median},
		{publishRatio, "", spreadOf(publishRatios).median},
		{claimRatio, "", spreadOf(drainRatios).median},
	}, nil
}

func (f filling) publishThenDrain(
	ctx context.Context, l *lab, topic string, n int,
) (published, drained float64, err error) {
	messages := newMessages(n)
	publishing, err := l.throughput(ctx, nil, n, func() error { return f.publish(ctx, l, topic, messages, 0) })
	if err != nil {
		return 0, 0, err
	}
	draining, err := f.drain(ctx, l, topic, newTally(n))
	if err != nil {
		return 0, 0, err
	}
	return publishing.get(rate), draining.get(rate), nil
}

// drainTopic drains a topic with one subscription of redisdelay.
func drainTopic(ctx context.Context, l *lab, topic string, t *tally) (sample, error) {
	subscriber, err := redisDelay().subscriber(l)
	if err != nil {
		return nil, err
	}
	var c crowd
	s, err := l.throughput(ctx, t, len(t.arrivals), func() error {
		if err := c.join(ctx, subscriber, topic, t.ack); err != nil {
			return err
		}
		return t.wait(ctx)
	})
	return s, errors.Join(err, c.leave(), t.check())
}

func publishFloorAll(
	ctx context.Context, l *lab, topic string, messages []*message.Message, delay time.Duration,
) error {
	f := newFloor(l.client(), topic)
	return inCalls(ctx, 4, callSize, messages, func(call []*message.Message) error { return f.push(ctx, delay, call) })
}
