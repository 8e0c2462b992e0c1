package main

import (
	"context"
	"errors"
	"time"
)

const (
	publishRatio = "publish rate, ratio"
	claimRatio   = "claim rate, ratio"
)

func million() experiment {
	return experiment{
		name: "million",
		what: "1,000,000 messages scheduled 24 h ahead in a topic. Then 100,000 due messages are published to it, 500 a\n" +
			"call, and drained, in turns with an empty topic; medians of five turns.",
		rounds:      1,
		contestants: []contestant{{ours, millionRun}},
		bars: []bar{
			{reading: publishRatio, of: ours, least: 0.9},
			{reading: claimRatio, of: ours, least: 0.9},
		},
	}
}

func millionRun(ctx context.Context, l *lab) (sample, error) {
	const turns, part = 5, 100_000
	loading := time.Now()
	total := l.count(1_000_000)
	for left := total; left > 0; left -= part {
		if err := publishAll(ctx, l, "full", delayed(newMessages(min(part, left)), 24*time.Hour)); err != nil {
			return nil, err
		}
	}
	loadRate := float64(total) / time.Since(loading).Seconds()

	rates := map[string][]float64{}
	for range turns {
		for _, topic := range []string{"empty", "full"} {
			published, drained, err := publishThenDrain(ctx, l, topic, l.count(backlog))
			if err != nil {
				return nil, err
			}
			rates["publish "+topic] = append(rates["publish "+topic], published)
			rates["drain "+topic] = append(rates["drain "+topic], drained)
		}
	}
	median := func(name string) float64 { return spreadOf(rates[name]).median }
	return sample{
		{"loading, with making the messages", "msg/s", loadRate},
		{"publish, empty topic", "msg/s", median("publish empty")},
		{"publish, full topic", "msg/s", median("publish full")},
		{"drain, empty topic", "msg/s", median("drain empty")},
		{"drain, full topic", "msg/s", median("drain full")},
		{publishRatio, "", median("publish full") / median("publish empty")},
		{claimRatio, "", median("drain full") / median("drain empty")},
	}, nil
}

func publishThenDrain(ctx context.Context, l *lab, topic string, n int) (published, drained float64, err error) {
	messages := newMessages(n)
	publishing, err := l.throughput(ctx, nil, n, func() error { return publishAll(ctx, l, topic, messages) })
	if err != nil {
		return 0, 0, err
	}
	subscriber, err := redisDelay().subscriber(l)
	if err != nil {
		return 0, 0, err
	}
	t := newTally(n)
	var c crowd
	draining, err := l.throughput(ctx, t, n, func() error {
		if err := c.join(ctx, subscriber, topic, t.ack); err != nil {
			return err
		}
		return t.wait(ctx)
	})
	if err = errors.Join(err, c.leave(), t.check()); err != nil {
		return 0, 0, err
	}
	return publishing.get(rate), draining.get(rate), nil
}
