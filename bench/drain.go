package main

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

const (
	backlog = 100_000

	// grouped is redisdelay with group limits that are never reached.
	grouped = ours + " with GroupLimits"
)

func groupedDelay() pubsub {
	p := redisDelay()
	p.name = grouped
	p.subscriber = func(l *lab) (message.Subscriber, error) {
		return redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
			Client: l.common(), ConsumerGroup: group,
			GroupLimits: redisdelay.GroupLimits{MaxInFlight: 10_000, Rate: redisdelay.Rate{Messages: 1_000_000}},
		}, nil)
	}
	return p
}

func drainOne() experiment {
	return experiment{
		name: "drain",
		what: "A due backlog of 100,000 messages, one subscription, `for m := range messages { m.Ack() }`. GroupLimits are never reached.\n" +
			"The Watermill floor is a minimal loop: claim 100 messages, hand over each when the one before is acked, ack all 100.",
		contestants: []contestant{
			drain(redisDelay(), 1), drain(groupedDelay(), 1), drain(redisStream(), 1),
			drain(floorPubSub(), 1),
		},
		bars: []bar{
			{reading: rate, of: ours, against: []string{"redisstream"}, least: 4.5},
			{reading: rate, of: ours, against: []string{"Watermill floor"}, least: 1},
			{reading: rate, of: grouped, against: []string{ours}, least: 0.9},
		},
	}
}

func drainTen() experiment {
	return experiment{
		name:        "drain10",
		what:        "The same as drain, with ten subscriptions of one group.",
		contestants: []contestant{drain(redisDelay(), 10), drain(redisStream(), 10)},
		bars:        []bar{{reading: rate, of: ours, against: []string{"redisstream"}, least: 4.5}},
	}
}

func drain(p pubsub, subscriptions int) contestant {
	return contestant{p.name, func(ctx context.Context, l *lab) (sample, error) {
		n := l.count(backlog / p.share)
		if err := p.fill(ctx, l, newMessages(n)); err != nil {
			return nil, err
		}
		return drainBacklog(ctx, l, p, subscriptions, newTally(n))
	}}
}

func drainBacklog(ctx context.Context, l *lab, p pubsub, subscriptions int, t *tally) (sample, error) {
	var c crowd
	s, err := l.throughput(ctx, t, len(t.arrivals), func() error {
		for range subscriptions {
			subscriber, err := p.subscriber(l)
			if err != nil {
				return err
			}
			if err := c.join(ctx, subscriber, topic, t.ack); err != nil {
				return err
			}
		}
		return t.wait(ctx)
	})
	err = errors.Join(err, c.leave())
	if err != nil {
		return nil, err
	}
	return s, errors.Join(t.check(), p.settled(ctx, l))
}

// ack is a handler that only acks.
func (t *tally) ack(msg *message.Message) {
	t.add(msg.Payload)
	msg.Ack()
}
