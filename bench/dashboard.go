package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
)

const (
	withTabs   = ours + ", 50 tabs"
	withPeople = ours + ", 50 tabs and people who click"

	looksEach    = "looks at Redis"
	peakOfMemory = "memory of the dashboard"

	dashboardTopics = 1000
	busyTopics      = 20
)

// openDashboard measures what open pages cost those who publish and consume.
func openDashboard() experiment {
	return experiment{
		name: "dashboard",
		what: "1,000 topics with three groups each; 4,000 messages due at random times within 20 s in 20 of them, with a\n" +
			"consumer each, while 200 messages a second are published to the others: how late each message is, without a\n" +
			"dashboard, with one in a process of its own whose pages fifty tabs have open (streams of lists, topics, messages and\n" +
			"forecasts), and with people who ask for a page each second besides. Looks at Redis are counted by their deadlines, once all\n" +
			"pages are open; memory is the most that the process had (VmHWM).",
		rounds: 3,
		contestants: []contestant{
			{ours, dashboardRun(0, 0)}, {withTabs, dashboardRun(50, 0)}, {withPeople, dashboardRun(50, time.Second)},
		},
		bars: []bar{
			{reading: looksEach, of: withTabs, most: 1},
			{reading: p99, of: withTabs, against: []string{ours}, most: 1.1},
			{reading: peakOfMemory, of: withTabs, most: 100},
			// What people ask for is read at once.
			{reading: looksEach, of: withPeople},
			{reading: p99, of: withPeople, against: []string{ours}},
			{reading: peakOfMemory, of: withPeople, most: 100},
		},
		chart: p99,
	}
}

// dashboardRun has so many open tabs, and somebody who asks for a page after each pause; 0: nobody.
func dashboardRun(open int, every time.Duration) func(ctx context.Context, l *lab) (sample, error) {
	return func(ctx context.Context, l *lab) (sample, error) {
		if err := manyTopics(ctx, l, dashboardTopics); err != nil {
			return nil, err
		}
		b, err := beginBusiness(ctx, l)
		if err != nil {
			return nil, err
		}
		var seen sample
		if open > 0 {
			seen, err = beside(ctx, l, open, every, b.work)
		} else {
			err = b.work(ctx)
		}
		if err := errors.Join(err, b.crowd.leave(), b.d.tally.check(), b.d.err); err != nil {
			return nil, err
		}
		return append(b.d.sample(), seen...), nil
	}
}

// business is what goes on while pages are open.
type business struct {
	lab   *lab
	crowd crowd
	d     *delays
}

func beginBusiness(ctx context.Context, l *lab) (*business, error) {
	n := l.count(4_000)
	b := &business{lab: l, d: &delays{tally: newTally(n), earliest: make([]time.Time, n)}}
	for i := range busyTopics {
		subscriber, err := newSubscriber(l, group, 0)
		if err != nil {
			return nil, err
		}
		if err := b.crowd.join(ctx, subscriber, busyTopic(i), b.d.receive); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func busyTopic(i int) string { return fmt.Sprint("busy", i) }

// work publishes, and waits until all has arrived.
func (b *business) work(ctx context.Context) error {
	if err := pause(ctx, settlingPause); err != nil {
		return err
	}
	list := b.d.messages(time.Second, b.lab.duration(20*time.Second))
	for i := range busyTopics {
		var share []*message.Message
		for n := i; n < len(list); n += busyTopics {
			share = append(share, list[n])
		}
		if err := publishAll(ctx, b.lab, busyTopic(i), share); err != nil {
			return err
		}
	}
	others, stop := context.WithCancel(ctx)
	failed := make(chan error, 1)
	go func() { failed <- publishToOthers(others, b.lab) }() // ended by stop, waited for below
	err := b.d.tally.wait(ctx)
	stop()
	return errors.Join(err, <-failed)
}

// publishToOthers publishes to any of the topics, until ctx ends.
func publishToOthers(ctx context.Context, l *lab) error {
	publisher, err := redisDelay().publisher(l)
	if err != nil {
		return err
	}
	for pause(ctx, 5*time.Millisecond) == nil {
		msg := newMessages(1)[0]
		delay.Message(msg, delay.For(time.Hour))
		if err := publisher.Publish(fmt.Sprint("topic", rand.IntN(dashboardTopics)), msg); err != nil {
			return err
		}
	}
	return publisher.Close()
}

// beside does something while pages of a dashboard are open.
func beside(ctx context.Context, l *lab, open int, every time.Duration, do func(ctx context.Context) error) (sample, error) {
	served, err := startSelf(ctx, serveDashboard, l.server.Addr)
	if err != nil {
		return nil, err
	}
	v, err := openTabs(ctx, "http://"+served.addr+"/", open)
	if err != nil {
		return nil, errors.Join(err, served.stop())
	}
	if every > 0 {
		v.goBrowsing(every)
	}
	before, start := v.looked(), time.Now()
	err = do(ctx)
	after, seconds := v.looked(), time.Since(start).Seconds()
	peak, err2 := served.peakMemory()
	sent, err3 := v.leave()
	err = errors.Join(err, err2, err3, served.stop())
	if err != nil {
		return nil, err
	}
	used := served.child.ProcessState
	return sample{
		{looksEach, "/s", (after - before) / seconds},
		{"pages sent to tabs", "/s", sent / seconds},
		{"CPU of the dashboard", "ms/s", (used.UserTime() + used.SystemTime()).Seconds() * 1000 / seconds},
		{peakOfMemory, "MB", peak / 1e6},
	}, nil
}

// livePages are what tabs have open: half of them the list of topics.
func livePages(n int) string {
	topic := url.Values{"topic": {busyTopic(n / 10 % busyTopics)}}
	switch n % 10 {
	case 0, 1:
		topic.Set("page", "topic")
	case 2:
		topic.Set("page", "upcoming")
	case 3:
		return "events?page=operations"
	case 4:
		return "events?page=schedules"
	default:
		return "events?" + url.Values{"page": {""}, "sort": {[]string{"overdue", "scheduled", "name"}[n%3]}}.Encode()
	}
	return "events?" + topic.Encode()
}

// clicked are what people ask for, one after the other.
func clicked(n int) string {
	topic := fmt.Sprint("topic", n*37%dashboardTopics)
	return []string{"", "topic?topic=" + topic, "messages?in=waiting&topic=" + topic, "reasons?topic=" + topic, "upcoming?next=day", "find?text=nothing"}[n%6]
}
