package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
)

const (
	besideFlood = "p99 beside the flood"
	quietTopics = 100
)

// flood measures what a topic with a million messages due at once does to the others on its server.
func flood() experiment {
	return experiment{
		name: "flood",
		what: "1,000,000 messages of a topic due at the same moment, for 20 consumers, beside 100 quiet topics with a\n" +
			"message each second and one idle consumer each: how late the messages of the quiet topics are while nothing\n" +
			"else happens, and while the flood lasts, all in one process; and how long the flood takes.",
		rounds:      1,
		limit:       10 * time.Minute,
		contestants: []contestant{{ours, floodRun}},
		bars:        []bar{{reading: besideFlood, of: ours, most: milli(inTime)}},
	}
}

func floodRun(ctx context.Context, l *lab) (_ sample, err error) {
	var q probes
	var c crowd
	defer func() { err = errors.Join(err, c.leave()) }()
	subscriber, err := newSubscriber(l, group, 0)
	if err != nil {
		return nil, err
	}
	for n := range quietTopics {
		if err := c.join(ctx, subscriber, quietTopic(n), q.receive); err != nil {
			return nil, err
		}
	}
	lasting := l.duration(10 * time.Second)
	alone, err := quietly(ctx, l, &q, time.Now().Add(time.Second), lasting)
	if err != nil {
		return nil, err
	}
	beside, took, err := flooded(ctx, l, &q, lasting)
	if err != nil {
		return nil, err
	}
	n := float64(l.count(1_000_000))
	return sample{
		{"p50 alone", "ms", quantile(alone, 0.5)},
		{"p99 alone", "ms", quantile(alone, 0.99)},
		{"max alone", "ms", quantile(alone, 1)},
		{"p50 beside the flood", "ms", quantile(beside, 0.5)},
		{besideFlood, "ms", quantile(beside, 0.99)},
		{"max beside the flood", "ms", quantile(beside, 1)},
		{"messages of quiet topics beside the flood", "", float64(len(beside))},
		{"the flood took", "s", took.Seconds()},
		{"flood, " + rate, "msg/s", n / took.Seconds()},
	}, nil
}

func quietTopic(n int) string { return fmt.Sprint("quiet", n) }

// flooded lets the flood fall due, and returns how late the messages of quiet topics were that fell due while it
// lasted, and how long that was.
func flooded(ctx context.Context, l *lab, q *probes, lasting time.Duration) (late []time.Duration, took time.Duration, err error) {
	const name, consumers = "flood", 20
	n := l.count(1_000_000)
	due, err := storeFlood(ctx, l, name, n)
	if err != nil {
		return nil, 0, err
	}
	t := newTally(n)
	var c crowd
	subscriber, err := newSubscriber(l, group, 0)
	if err != nil {
		return nil, 0, err
	}
	for range consumers {
		if err := c.join(ctx, subscriber, name, t.ack); err != nil {
			return nil, 0, err
		}
	}
	over := make(chan time.Time, 1)
	go func() { // flooded waits for it
		_ = t.wait(ctx) // so does flooded, for the error
		over <- time.Now()
	}()
	_, err = quietly(ctx, l, q, due, 2*lasting)
	end := <-over
	if err := errors.Join(err, t.wait(ctx), c.leave(), t.check()); err != nil {
		return nil, 0, err
	}
	return q.lateness(due, end), end.Sub(due), nil
}

// storeFlood stores n messages before they are due, all at once, and returns when that is.
func storeFlood(ctx context.Context, l *lab, topic string, n int) (due time.Time, err error) {
	const trial = 50 // one in so many shows how long the rest may take
	began := time.Now()
	if err := fill(ctx, l, "trial", n/trial, tomorrow); err != nil {
		return due, err
	}
	due = time.Now().Add(2*trial*time.Since(began) + 3*time.Second).Truncate(time.Second)
	err = fill(ctx, l, topic, n, func(msg *message.Message) {
		msg.Metadata.Set(delay.DelayedUntilKey, due.UTC().Format(time.RFC3339)) // alone, it counts as it is written
	})
	if late := time.Since(due); err == nil && late > 0 {
		err = fmt.Errorf("the flood was due %v ago, and has only just been stored", late)
	}
	return due, err
}

// quietly publishes to each quiet topic a message for each second from a time on, waits for all, and returns how late
// they were.
func quietly(ctx context.Context, l *lab, q *probes, from time.Time, lasting time.Duration) ([]time.Duration, error) {
	publisher, err := redisDelay().publisher(l)
	if err != nil {
		return nil, err
	}
	defer publisher.Close() //nolint:errcheck // all that it has published has arrived
	each := int(lasting / time.Second)
	for topic := range quietTopics {
		list := newMessages(each)
		for i, msg := range list {
			at := from.Add(time.Duration(i)*time.Second + rand.N(time.Second))
			delay.Message(msg, delay.For(time.Until(at)))
		}
		if err := publisher.Publish(quietTopic(topic), list...); err != nil {
			return nil, err
		}
	}
	to := from.Add(lasting + time.Second) // Publish takes a moment
	err = l.until(ctx, func() (bool, error) { return len(q.lateness(from, to)) >= each*quietTopics, nil })
	late := q.lateness(from, to)
	if err != nil {
		err = fmt.Errorf("messages of quiet topics are lost: %d of %d arrived: %w", len(late), each*quietTopics, err)
	}
	return late, err
}
