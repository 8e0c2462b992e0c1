package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

const (
	backlog = 100_000

	// limited is redisdelay with a limit of deliveries.
	limited = ours + ", MaxDeliveries 5"

	// grouped is redisdelay with limits of the group that leave enough room.
	grouped = ours + ", GroupLimits"
)

// variant is redisdelay with another configuration of the subscriber.
func variant(name string, configure func(c *redisdelay.SubscriberConfig)) pubsub {
	p := redisDelay()
	p.name = name
	p.subscriber = func(l *lab) (message.Subscriber, error) {
		config := redisdelay.SubscriberConfig{Client: l.common(), ConsumerGroup: group}
		configure(&config)
		return redisdelay.NewSubscriber(config, nil)
	}
	return p
}

func limitedDelay() pubsub {
	return variant(limited, func(c *redisdelay.SubscriberConfig) { c.MaxDeliveries = 5 })
}

func groupedDelay() pubsub {
	return variant(grouped, func(c *redisdelay.SubscriberConfig) {
		c.GroupLimits = redisdelay.GroupLimits{MaxInFlight: 10_000, Rate: redisdelay.Rate{Messages: 1_000_000}}
	})
}

func drainOne() experiment {
	return experiment{
		name: "drain",
		what: "A due backlog of 100,000 messages, one subscription, `for m := range messages { m.Ack() }`.\n" +
			"The Watermill floor claims 100 messages, hands each over when the one before is acked, acks the 100 and\n" +
			"begins again. The overlapped floor has claims, deliveries and acks under way at once, as redisdelay has,\n" +
			"and is there to compare: it is what one consumer could reach without any guarantee. The channel floor\n" +
			"hands over without any Redis.",
		contestants: []contestant{
			drain(redisDelay(), 1), drain(limitedDelay(), 1), drain(groupedDelay(), 1), drain(redisStream(), 1),
			drainFloor("Watermill floor", floor.inTurn),
			drainFloor("overlapped floor", floor.overlapped),
			{"channel floor", drainChannel},
		},
		bars: []bar{
			{reading: rate, of: ours, against: []string{"redisstream"}, least: 4.5},
			{reading: rate, of: ours, against: []string{"Watermill floor"}, least: 1},
			{reading: rate, of: ours, against: []string{"overlapped floor"}},
			{reading: rate, of: limited, against: []string{ours}, least: 0.9},
			{reading: rate, of: grouped, against: []string{ours}, least: 0.9},
		},
		chart: rate,
	}
}

func drainTen() experiment {
	return experiment{
		name:        "drain10",
		what:        "The same with ten subscriptions of one group.",
		contestants: []contestant{drain(redisDelay(), 10), drain(redisStream(), 10)},
		bars:        []bar{{reading: rate, of: ours, against: []string{"redisstream"}, least: 4.5}},
		chart:       rate,
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

const groupCount = 8

func groups() experiment {
	several := fmt.Sprintf("%s, %d groups", ours, groupCount)
	const timeEach, bytesEach = "time per delivery", "scheduled"
	return experiment{
		name: "groups8",
		what: "Eight groups on one topic: what 100,000 scheduled messages take in Redis, and the time to deliver\n" +
			"a due backlog of 20,000 to each group, by delivery; 100,000 to one group.",
		rounds: 3,
		contestants: []contestant{
			{ours, groupRun(1, backlog)}, {several, groupRun(groupCount, backlog/5)},
		},
		bars: []bar{
			{reading: bytesEach, of: several, against: []string{ours}, most: 1.02},
			{reading: timeEach, of: several, against: []string{ours}, most: 1.3},
		},
	}
}

func groupRun(groups, messages int) func(ctx context.Context, l *lab) (sample, error) {
	return func(ctx context.Context, l *lab) (sample, error) {
		memory, err := scheduledMemory(ctx, l, groups)
		if err != nil {
			return nil, err
		}
		if err := l.reset(ctx, l.running[0], l.running[1]); err != nil {
			return nil, err
		}
		s, err := drainGroups(ctx, l, groups, l.count(messages))
		if err != nil {
			return nil, err
		}
		return append(sample{
			{"time per delivery", "µs", 1e6 / s.get(rate)},
			{"scheduled", "bytes/msg", memory},
		}, s...), nil
	}
}

func scheduledMemory(ctx context.Context, l *lab, groups int) (float64, error) {
	if err := register(l, groups); err != nil { //nolint:contextcheck // Close has a timeout of its own
		return 0, err
	}
	return bytesPerMessage(ctx, l, l.count(backlog), scheduleOurs)
}

func groupName(i int) string { return fmt.Sprintf("%s%d", group, i) }

func register(l *lab, groups int) error {
	for i := range groups {
		s, err := newSubscriber(l, groupName(i), 0)
		if err != nil {
			return err
		}
		if err := errors.Join(s.SubscribeInitialize(topic), s.Close()); err != nil {
			return err
		}
	}
	return nil
}

// drainGroups delivers a backlog to each of the groups, which exist before it.
func drainGroups(ctx context.Context, l *lab, groups, n int) (sample, error) {
	if err := register(l, groups); err != nil { //nolint:contextcheck // Close has a timeout of its own
		return nil, err
	}
	if err := publishAll(ctx, l, topic, newMessages(n)); err != nil {
		return nil, err
	}
	tallies := make([]*tally, groups)
	for i := range tallies {
		tallies[i] = newTally(n)
	}
	var c crowd
	s, err := l.throughput(ctx, nil, n*groups, func() error {
		for i, t := range tallies {
			subscriber, err := newSubscriber(l, groupName(i), 0)
			if err != nil {
				return err
			}
			if err := c.join(ctx, subscriber, topic, t.ack); err != nil {
				return err
			}
		}
		return errors.Join(each(tallies, func(t *tally) error { return t.wait(ctx) })...)
	})
	err = errors.Join(err, c.leave(), redisDelay().settled(ctx, l))
	err = errors.Join(append(each(tallies, (*tally).check), err)...)
	again := 0.0
	for _, t := range tallies {
		again += float64(t.duplicates.Load())
	}
	return append(s, reading{duplicates, "", again}), err
}

func each[T any](list []T, do func(T) error) []error {
	var errs []error
	for v := range slices.Values(list) {
		errs = append(errs, do(v))
	}
	return errs
}
