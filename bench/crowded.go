package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

const (
	connections    = "connections for notifications"
	goroutinesEach = "goroutines of a subscription"
	commandsEach   = "commands of a subscription"
)

// idleCrowd measures what subscriptions cost that have nothing to do.
func idleCrowd() experiment {
	return experiment{
		name: "idle100",
		what: "100 Subscribers with a group each, of one topic with 4 partitions, in one process with one client and\n" +
			"without messages for a minute: their connections for notifications besides the client's pool, their goroutines\n" +
			"with MaxInFlight 1, and the commands that they send (MONITOR, without those within scripts).",
		rounds:      2,
		contestants: []contestant{{ours, idleCrowdRun}},
		bars: []bar{
			{reading: connections, of: ours, most: 3},
			{reading: goroutinesEach, of: ours, most: 2 + crowdPartitions},
			{reading: commandsEach, of: ours},
		},
	}
}

const crowdPartitions = 4

func idleCrowdRun(ctx context.Context, l *lab) (sample, error) {
	const subscriptions = 100
	if err := makePartitions(l); err != nil {
		return nil, err
	}
	before := runtime.NumGoroutine()
	var c crowd
	for n := range subscriptions {
		subscriber, err := newSubscriber(l, fmt.Sprint("g", n), 0)
		if err != nil {
			return nil, err
		}
		if err := c.join(ctx, subscriber, topic, func(msg *message.Message) { msg.Ack() }); err != nil {
			return nil, err
		}
	}
	s, err := countIdle(ctx, l, subscriptions)
	// The reader of each channel is not the library's.
	running := float64(runtime.NumGoroutine()-before)/subscriptions - 1
	s = append(s, reading{goroutinesEach, "", running})
	return s, errors.Join(err, c.leave())
}

func makePartitions(l *lab) error {
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{
		Client: l.common(), Partitions: crowdPartitions,
	}, nil)
	if err != nil {
		return err
	}
	err = publisher.Publish(topic, message.NewMessage("first", nil))
	return errors.Join(err, publisher.Close())
}

func countIdle(ctx context.Context, l *lab, subscriptions float64) (sample, error) {
	if err := pause(ctx, restingPause); err != nil {
		return nil, err
	}
	used, sent, claims, err := whileIdle(ctx, l)
	if err != nil {
		return nil, err
	}
	clients, err := l.admin.Do(ctx, "CLIENT", "LIST", "TYPE", "pubsub").Text()
	if err != nil {
		return nil, err
	}
	each := subscriptions * used.elapsed.Seconds()
	return sample{
		{connections, "", float64(strings.Count(clients, "\n"))},
		{commandsEach, "/s", sent / each},
		{"claims of a subscription", "/s", claims / each},
		{"client CPU of a subscription", "ms/s", used.client.Seconds() * 1000 / each},
	}, nil
}
