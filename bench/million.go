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
			{"overlapped floor", millionRun(floorFilling())},
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

func floorFilling() filling {
	return filling{
		publish: publishFloorAll,
		drain: func(ctx context.Context, l *lab, topic string, t *tally) (sample, error) {
			return newFloor(l.client(), topic).drain(ctx, l, floor.overlapped, t)
		},
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
	var published, drained [2][]sample // of the empty and of the full one
	sides := []side{empty, full}
	for turn := range turns {
		for i := range sides {
			i = (i + turn) % 2 // the order alternates
			p, d, err := f.publishThenDrain(ctx, sides[i], sides[i].lab.count(backlog))
			if err != nil {
				return nil, err
			}
			published[i], drained[i] = append(published[i], p), append(drained[i], d)
		}
	}
	var s sample
	for i, name := range []string{"empty ", "full "} {
		s = append(s,
			reading{"publish, " + name + what, "msg/s", spreadOf(column(published[i], rate)).median},
			reading{"publish, " + name + what + ", " + redisCPU, "µs/msg", spreadOf(column(published[i], redisCPU)).median},
			reading{"drain, " + name + what, "msg/s", spreadOf(column(drained[i], rate)).median},
			reading{"drain, " + name + what + ", " + redisCPU, "µs/msg", spreadOf(column(drained[i], redisCPU)).median},
		)
	}
	return append(s, reading{publishRatio, "", ratioOf(published)}, reading{claimRatio, "", ratioOf(drained)}), nil
}

func column(samples []sample, reading string) (list []float64) {
	for _, s := range samples {
		list = append(list, s.get(reading))
	}
	return list
}

// ratioOf is the median ratio of the rate of the full one to that of the empty one in the same turn.
func ratioOf(turns [2][]sample) float64 {
	empty, full := column(turns[0], rate), column(turns[1], rate)
	for i := range full {
		full[i] /= empty[i]
	}
	return spreadOf(full).median
}

func (f filling) publishThenDrain(ctx context.Context, at side, n int) (published, drained sample, err error) {
	messages := newMessages(n)
	published, err = at.lab.throughput(ctx, nil, n, func() error { return f.publish(ctx, at.lab, at.topic, messages, 0) })
	if err != nil {
		return nil, nil, err
	}
	drained, err = f.drain(ctx, at.lab, at.topic, newTally(n))
	return published, drained, err
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
