package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/relay"
)

const (
	relayed = 50_000

	// published is a relay that publishes with redisstream, as it does to a stream on another server.
	published = ours + " with a Publisher"
)

func relays() experiment {
	return experiment{
		name: "relay",
		what: "A relay transfers a due backlog of 50,000 messages to a Redis stream, by a script or with redisstream's Publisher. The third\n" +
			"column is that Publisher alone, with 100 messages per call.",
		contestants: []contestant{
			{ours, func(ctx context.Context, l *lab) (sample, error) {
				return relayBacklog(ctx, l, relay.Config{Streams: &redisstream.PublisherConfig{Client: l.common()}})
			}},
			{published, func(ctx context.Context, l *lab) (sample, error) {
				return relayBacklog(ctx, l, relay.Config{Streams: &redisstream.PublisherConfig{Client: l.client()}})
			}},
			{"redisstream", func(ctx context.Context, l *lab) (sample, error) {
				publisher, err := redisStream().publisher(l)
				if err != nil {
					return nil, err
				}
				list := newMessages(l.count(relayed / peerShare))
				s, err := l.throughput(ctx, nil, len(list), func() error {
					return inCalls(ctx, 1, 100, list, func(call []*message.Message) error {
						return publisher.Publish(topic, call...)
					})
				})
				return s, errors.Join(err, publisher.Close())
			}},
		},
		bars: []bar{
			{reading: rate, of: ours, least: 10_000},
			{reading: rate, of: ours, against: []string{"redisstream"}, least: 1},
			{reading: rate, of: published, against: []string{"redisstream"}},
		},
	}
}

// relayBacklog measures the time from the start of the relay until the stream has all messages.
func relayBacklog(ctx context.Context, l *lab, config relay.Config) (sample, error) {
	config.Client, config.Topics = l.common(), []string{topic}
	n := l.count(relayed)
	group, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: l.common()}, nil)
	if err != nil {
		return nil, err
	}
	err = errors.Join(group.RegisterGroup(ctx, topic, relay.DefaultConsumerGroup), group.Close()) //nolint:contextcheck // Close has a timeout of its own
	if err = errors.Join(err, publishAll(ctx, l, topic, newMessages(n))); err != nil {
		return nil, err
	}
	r, err := relay.New(config, nil)
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	s, err := l.throughput(ctx, nil, n, func() error {
		go func() { ended <- r.Run(running) }() // ends with stop
		return l.until(ctx, func() (bool, error) {
			got, err := l.admin.XLen(ctx, topic).Result()
			return got >= int64(n), err
		})
	})
	stop()
	err = errors.Join(err, <-ended, redisDelay().settled(ctx, l))
	if left := l.admin.XLen(ctx, topic).Val(); err == nil && left != int64(n) {
		err = fmt.Errorf("%d of %d messages are in the stream", left, n)
	}
	return s, err
}
