package main

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/examples/internal/redisserver"
)

const group = "warehouse"

// backend is what differs between the Pub/Subs.
type backend struct {
	publisher  message.Publisher
	subscriber message.Subscriber
	delays     bool // whether it supports delays
	remark     string
}

func newBackend(name string, server *redisserver.Server, logger watermill.LoggerAdapter) (backend, error) {
	switch name {
	case "redisdelay":
		return newRedisdelay(server, logger)
	case "redisstream":
		return newRedisstream(server, logger)
	default:
		return backend{}, fmt.Errorf("unknown backend %q", name)
	}
}

func newRedisdelay(server *redisserver.Server, logger watermill.LoggerAdapter) (backend, error) {
	client := server.Client()
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, logger)
	if err != nil {
		return backend{}, fmt.Errorf("create publisher: %w", err)
	}
	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client:        client,
		ConsumerGroup: group,
	}, logger)
	if err != nil {
		return backend{}, fmt.Errorf("create subscriber: %w", err)
	}
	return backend{publisher, subscriber, true, "It keeps each message until it is due."}, nil
}

// newRedisstream gives the publisher and the subscriber a client each, since their Close
// closes it.
func newRedisstream(server *redisserver.Server, logger watermill.LoggerAdapter) (backend, error) {
	publisher, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: server.Client()}, logger)
	if err != nil {
		return backend{}, fmt.Errorf("create publisher: %w", err)
	}
	subscriber, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
		Client:        server.Client(),
		ConsumerGroup: group,
		// By default, the first read waits for a message for ever, whatever its context.
		DisableIndefiniteInitialBlock: true,
	}, watermill.NopLogger{}) // it would log the end of each read as an error
	if err != nil {
		return backend{}, fmt.Errorf("create subscriber: %w", err)
	}
	return backend{publisher, subscriber, false, "It has no delays: each message comes at once."}, nil
}
