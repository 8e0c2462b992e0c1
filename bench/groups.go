package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

const (
	idleShare  = "idle, of Redis's processor"
	lastGroup  = "the last group's lateness"
	mostGroups = 100             // of a topic
	usualPoll  = 5 * time.Second // the default PollInterval
)

// manyGroups measures the cost of many groups.
func manyGroups() experiment {
	return experiment{
		name: fmt.Sprint("groups", mostGroups),
		what: fmt.Sprintf("%d consumer groups of one topic, with one consumer each: their cost while idle, compared with an empty Redis, and\n"+
			"the cost of one message, as the mean of five messages. The lateness of the last group is the worst of the five.", mostGroups),
		rounds:      2,
		contestants: []contestant{{ours, manyGroupsRun}},
		bars: []bar{
			{reading: idleShare, of: ours, most: 1}, {reading: lastGroup, of: ours, most: 100},
		},
	}
}

func manyGroupsRun(ctx context.Context, l *lab) (_ sample, err error) {
	late := make(arrivals, mostGroups)
	empty, err := l.measure(ctx, func() error { return pause(ctx, l.duration(usualPoll)) })
	if err != nil {
		return nil, err
	}
	var c crowd
	defer func() { err = errors.Join(err, c.leave()) }()
	for n := range mostGroups {
		subscriber, err := newSubscriber(l, fmt.Sprint("g", n), 0)
		if err != nil {
			return nil, err
		}
		if err := c.join(ctx, subscriber, topic, late.receive); err != nil {
			return nil, err
		}
	}
	if err := pause(ctx, settlingPause); err != nil {
		return nil, err
	}
	// The groups have started together, so they poll together: measure whole polls.
	idle, err := l.measure(ctx, func() error { return pause(ctx, l.duration(2*usualPoll)) })
	if err != nil {
		return nil, err
	}
	s := sample{
		{idleShare, "%", idle.share() - empty.share()},
		{"empty, of Redis's processor", "%", empty.share()},
	}
	costs, err := costOfMessages(ctx, l, idle, late)
	return append(s, costs...), err
}

// arrivals receives the lateness of each message.
type arrivals chan time.Duration

func (a arrivals) receive(msg *message.Message) {
	delivery, _ := redisdelay.DeliveryFromContext(msg.Context())
	a <- time.Since(delivery.DueAt)
	msg.Ack()
}

// costOfMessages makes five messages due, one after another, and subtracts the cost of idle groups.
func costOfMessages(ctx context.Context, l *lab, idle usage, late arrivals) (sample, error) {
	publisher, err := redisDelay().publisher(l)
	if err != nil {
		return nil, err
	}
	defer publisher.Close() //nolint:errcheck // all its messages have arrived
	var last, p50 []float64
	var redis float64 // for all five: for one, Redis's own housekeeping is too large a part
	const several = 5
	for range several {
		list := newMessages(1)
		delay.Message(list[0], delay.For(time.Second))
		all := make([]time.Duration, 0, mostGroups)
		used, err := l.measure(ctx, func() error {
			if err := publisher.Publish(topic, list...); err != nil {
				return err
			}
			for range mostGroups {
				select {
				case d := <-late:
					all = append(all, d)
				case <-ctx.Done():
					return fmt.Errorf("one of the groups has got nothing: %w", ctx.Err())
				}
			}
			return pause(ctx, time.Second) // for acks, and the work after them
		})
		if err != nil {
			return nil, err
		}
		slices.Sort(all)
		share := used.elapsed.Seconds() / idle.elapsed.Seconds()
		redis += milli(used.redis) - milli(idle.redis)*share
		last = append(last, milli(all[len(all)-1]))
		p50 = append(p50, milli(all[len(all)/2]))
	}
	return sample{
		{"a message, of Redis's processor", "ms", redis / several},
		{"half of the groups' lateness", "ms", spreadOf(p50).median},
		{lastGroup, "ms", spreadOf(last).most},
	}, nil
}

func milli(d time.Duration) float64 { return d.Seconds() * 1000 }

// share returns Redis's processor time as a percentage of the elapsed time.
func (u usage) share() float64 { return 100 * u.redis.Seconds() / u.elapsed.Seconds() }
