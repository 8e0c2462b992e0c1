package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

const (
	topic = "bench"
	group = "workers"

	// peerShare is the fraction of a backlog (one in this many messages) for peers that take much
	// longer. Their rates do not depend on it.
	peerShare = 5

	// callSize is the number of messages per Publish call in runs that do not measure publishing.
	callSize = 500
)

// pubsub is a Watermill Pub/Sub with its defaults.
type pubsub struct {
	name       string
	share      int // it gets one in this many messages of a backlog
	publisher  func(l *lab) (message.Publisher, error)
	subscriber func(l *lab) (message.Subscriber, error)
	fill       func(ctx context.Context, l *lab, messages []*message.Message) error
	settled    func(ctx context.Context, l *lab) error // an error unless all messages are acked
}

// redisDelay is this library. Its publisher and subscriber share a client.
func redisDelay() pubsub {
	return pubsub{
		name:  ours,
		share: 1,
		publisher: func(l *lab) (message.Publisher, error) {
			return redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: l.common()}, nil)
		},
		subscriber: func(l *lab) (message.Subscriber, error) { return newSubscriber(l, group, 0) },
		fill: func(ctx context.Context, l *lab, messages []*message.Message) error {
			return publishAll(ctx, l, topic, messages)
		},
		settled: func(ctx context.Context, l *lab) error {
			left, err := l.admin.Exists(ctx, messagesKey(topic)).Result()
			if err == nil && left > 0 {
				err = fmt.Errorf("messages are left in Redis although all were acked")
			}
			return err
		},
	}
}

// redisStream is the peer. It closes the clients that it gets, so its publisher and subscriber have their own.
func redisStream() pubsub {
	return pubsub{
		name:  "redisstream",
		share: peerShare,
		publisher: func(l *lab) (message.Publisher, error) {
			return streamPublisher(l.client())
		},
		subscriber: func(l *lab) (message.Subscriber, error) {
			return redisstream.NewSubscriber(redisstream.SubscriberConfig{
				Client: l.client(), ConsumerGroup: group, OldestId: "0",
			}, nil)
		},
		fill:    fillStream,
		settled: func(context.Context, *lab) error { return nil },
	}
}

func streamPublisher(client *redis.Client) (message.Publisher, error) {
	return redisstream.NewPublisher(redisstream.PublisherConfig{Client: client}, nil)
}

func newSubscriber(l *lab, group string, maxInFlight int) (*redisdelay.Subscriber, error) {
	return redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client: l.common(), ConsumerGroup: group, MaxInFlight: maxInFlight,
	}, nil)
}

// messagesKey returns the key with the bodies of a topic; see docs/inside/protocol.md.
func messagesKey(topic string) string { return "{redisdelay:" + topic + ":0}:messages" }

// publishAll publishes with redisdelay, as fast as possible.
func publishAll(ctx context.Context, l *lab, topic string, messages []*message.Message) error {
	publisher, err := redisDelay().publisher(l)
	if err != nil {
		return err
	}
	if err := inCalls(ctx, 4, callSize, messages, func(call []*message.Message) error {
		return publisher.Publish(topic, call...)
	}); err != nil {
		return err
	}
	return publisher.Close()
}

// fillStream appends messages in pipelines, because redisstream's Publisher would append them one
// by one.
func fillStream(ctx context.Context, l *lab, messages []*message.Message) error {
	client := l.client()
	return inCalls(ctx, 1, callSize, messages, func(call []*message.Message) error {
		_, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, msg := range call {
				values, err := redisstream.DefaultMarshallerUnmarshaller{}.Marshal(topic, msg)
				if err != nil {
					return err
				}
				pipe.XAdd(ctx, &redis.XAddArgs{Stream: topic, Values: values})
			}
			return nil
		})
		return err
	})
}

// inCalls divides a list among goroutines. Each calls do with parts of the given size. It returns
// the first error when all have ended.
func inCalls[T any](ctx context.Context, goroutines, size int, list []T, do func(call []T) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for g := range goroutines {
		part := list[g*len(list)/goroutines : (g+1)*len(list)/goroutines]
		all.Go(func() {
			for len(part) > 0 && ctx.Err() == nil {
				n := min(size, len(part))
				if err := do(part[:n]); err != nil {
					cancel(err)
				}
				part = part[n:]
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// crowd is a set of consumers, each with a goroutine that ends when its channel is closed.
type crowd struct {
	subscribers []message.Subscriber
	consumers   sync.WaitGroup
}

// join subscribes and passes each message to handle, which settles it.
func (c *crowd) join(ctx context.Context, s message.Subscriber, topic string, handle func(*message.Message)) error {
	messages, err := s.Subscribe(ctx, topic)
	if err != nil {
		return err
	}
	c.subscribers = append(c.subscribers, s)
	c.consumers.Go(func() {
		for msg := range messages {
			handle(msg)
		}
	})
	return nil
}

// leave closes the subscribers and waits for the consumers.
func (c *crowd) leave() error {
	var closed sync.WaitGroup
	errs := make([]error, len(c.subscribers))
	for i, s := range c.subscribers {
		closed.Go(func() { errs[i] = s.Close() })
	}
	closed.Wait()
	c.consumers.Wait()
	return errors.Join(errs...)
}
