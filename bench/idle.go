package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
)

const (
	commandRate   = "commands sent"
	idleCPU       = "idle client CPU"
	claimsEach    = "claims per message"
	settlingPause = 3 * time.Second  // for connections, first claims and the like
	restingPause  = 50 * time.Second // until a subscription relies on notifications, and so claims rarely
	idleFor       = time.Minute      // two claims of each
)

func idleOne() experiment {
	return experiment{
		name: "idle",
		what: "One subscription without messages for a minute: the commands that it sends (MONITOR, without those within\n" +
			"scripts, which INFO would count; half a command a second are pings, one for all subscriptions), and what that takes.",
		rounds:      2,
		contestants: []contestant{{ours, idleRun}},
		bars: []bar{
			{reading: commandRate, of: ours, most: 0.6},
			{reading: idleCPU, of: ours, most: 1},
		},
	}
}

func idleRun(ctx context.Context, l *lab) (sample, error) {
	subscriber, err := newSubscriber(l, group, 0)
	if err != nil {
		return nil, err
	}
	t := newTally(1)
	var c crowd
	if err := c.join(ctx, subscriber, topic, t.ack); err != nil {
		return nil, err
	}
	if err := pause(ctx, restingPause); err != nil {
		return nil, err
	}
	used, sent, claims, err := whileIdle(ctx, l)
	if err := errors.Join(err, c.leave()); err != nil {
		return nil, err
	}
	seconds := used.elapsed.Seconds()
	perSecond := func(d time.Duration) float64 { return d.Seconds() * 1000 / seconds }
	return sample{
		{commandRate, "/s", sent / seconds},
		{"claims sent", "/s", claims / seconds},
		{"commands within scripts and without", "/s", used.commands / seconds},
		{idleCPU, "ms/s", perSecond(used.client)},
		{"idle Redis CPU", "ms/s", perSecond(used.redis)},
	}, nil
}

func idleTopics() experiment {
	return experiment{
		name: "idle200",
		what: "200 subscriptions with a topic each, of one client and without messages for a minute: the commands that they\n" +
			"send, pings included.",
		rounds:      2,
		contestants: []contestant{{ours, idleTopicsRun}},
		bars:        []bar{{reading: commandsEach, of: ours, most: 0.05}},
	}
}

func idleTopicsRun(ctx context.Context, l *lab) (sample, error) {
	const subscriptions = 200
	var c crowd
	for n := range subscriptions {
		subscriber, err := newSubscriber(l, group, 0)
		if err != nil {
			return nil, err
		}
		handle := func(msg *message.Message) { msg.Ack() }
		if err := c.join(ctx, subscriber, fmt.Sprint(topic, n), handle); err != nil {
			return nil, err
		}
	}
	s, err := countIdle(ctx, l, subscriptions)
	return s, errors.Join(err, c.leave())
}

// whileIdle counts the commands and the claims that are sent in a minute, and what they take.
func whileIdle(ctx context.Context, l *lab) (used usage, sent, claims float64, err error) {
	m, err := startMonitor(ctx, l)
	if err != nil {
		return usage{}, 0, 0, err
	}
	defer m.stop()
	used, err = l.measure(ctx, func() error { return pause(ctx, l.duration(idleFor)) })
	sent, claims = m.counts()
	return used, sent, claims, err
}

func idleMany() experiment {
	return experiment{
		name: "idle50",
		what: "50 idle consumers of a group, for which one message falls due each second, 15 in all: how many claims\n" +
			"Redis gets for each message, beyond the safety polls that it gets without any (counted before, for a minute).\n" +
			"Counted from half a second after the one call that schedules all 15; what that call wakes is\n" +
			"shown apart.",
		rounds:      2,
		contestants: []contestant{{ours, idleManyRun}},
		bars:        []bar{{reading: claimsEach, of: ours, most: 5}},
	}
}

func idleManyRun(ctx context.Context, l *lab) (sample, error) {
	const consumers, messages = 50, 15
	subscriber, err := newSubscriber(l, group, 0)
	if err != nil {
		return nil, err
	}
	t := newTally(messages)
	var c crowd
	for range consumers {
		if err := c.join(ctx, subscriber, topic, t.ack); err != nil {
			return nil, err
		}
	}
	m, err := startMonitor(ctx, l)
	if err != nil {
		return nil, err
	}
	defer m.stop()
	s, err := countClaims(ctx, l, m, t)
	return s, errors.Join(err, c.leave(), t.check())
}

func countClaims(ctx context.Context, l *lab, m *monitor, t *tally) (sample, error) {
	if err := pause(ctx, restingPause); err != nil {
		return nil, err
	}
	_, start := m.counts()
	if err := pause(ctx, idleFor); err != nil {
		return nil, err
	}
	_, before := m.counts()
	polls := (before - start) / idleFor.Seconds()

	list := newMessages(len(t.arrivals))
	for i, msg := range list {
		delay.Message(msg, delay.For(time.Duration(i)*time.Second+1500*time.Millisecond))
	}
	if err := publishAll(ctx, l, topic, list); err != nil {
		return nil, err
	}
	if err := pause(ctx, 500*time.Millisecond); err != nil {
		return nil, err
	}
	_, scheduled := m.counts()
	since := time.Now()
	if err := t.wait(ctx); err != nil {
		return nil, err
	}
	if err := pause(ctx, time.Second); err != nil { // its own second
		return nil, err
	}
	_, after := m.counts()
	n := float64(len(list))
	return sample{
		{claimsEach, "", (after - scheduled - polls*time.Since(since).Seconds()) / n},
		{"claims per message, polls included", "", (after - scheduled) / n},
		{"polls", "/s", polls},
		{"claims upon publishing", "", scheduled - before},
		{duplicates, "", float64(t.duplicates.Load())},
	}, nil
}
