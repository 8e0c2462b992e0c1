package main

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
)

const (
	commandRate   = "commands sent"
	idleCPU       = "idle client CPU"
	claimsEach    = "claims per message"
	settlingPause = 3 * time.Second // for connections, first claims and the like
)

func idleOne() experiment {
	return experiment{
		name: "idle",
		what: "One subscription without messages for 20 s: the commands that it sends (MONITOR, without those within\n" +
			"scripts, which INFO would count), and what that takes.",
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
	if err := pause(ctx, settlingPause); err != nil {
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

// whileIdle counts the commands and the claims that are sent in 20 s, and what they take.
func whileIdle(ctx context.Context, l *lab) (used usage, sent, claims float64, err error) {
	m, err := startMonitor(ctx, l)
	if err != nil {
		return usage{}, 0, 0, err
	}
	defer m.stop()
	used, err = l.measure(ctx, func() error { return pause(ctx, l.duration(20*time.Second)) })
	sent, claims = m.counts()
	return used, sent, claims, err
}

func idleMany() experiment {
	return experiment{
		name: "idle50",
		what: "50 idle consumers of a group, for which one message falls due each second, 15 in all: how many claims\n" +
			"Redis gets for each message, beyond the safety polls that it gets without any (counted before, for 20 s).\n" +
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
	if err := pause(ctx, settlingPause); err != nil {
		return nil, err
	}
	const polling = 20 * time.Second // four polls of each
	_, start := m.counts()
	if err := pause(ctx, polling); err != nil {
		return nil, err
	}
	_, before := m.counts()
	polls := (before - start) / polling.Seconds()

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
