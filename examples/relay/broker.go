package main

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/examples/internal/redisserver"
	"github.com/redisdelay/watermill-redisdelay/relay"
)

// broker is what differs between the brokers.
type broker struct {
	publisher  message.Publisher
	subscriber message.Subscriber
	relay      relay.Config // how a relay reaches it
	remark     string
}

func newBroker(name string, client redis.UniversalClient, server *redisserver.Server, logger watermill.LoggerAdapter) (broker, error) {
	switch name {
	case "gochannel":
		return newGoChannel(logger), nil
	case "redisstream":
		return newRedisstream(client, server, logger)
	default:
		return broker{}, fmt.Errorf("unknown broker %q", name)
	}
}

// newGoChannel is a broker inside the program. With Kafka, NATS, AMQP and others, only these
// lines differ: see docs/use/relay.md.
func newGoChannel(logger watermill.LoggerAdapter) broker {
	channel := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 100}, logger)
	return broker{
		publisher: channel, subscriber: channel, relay: relay.Config{Target: channel},
		remark: "The relay publishes each message at least once.",
	}
}

// newRedisstream gives the publisher and the subscriber a client each, since their Close
// closes it. The relay has the client of the delayed messages, so that it moves a message to
// its stream in one step.
func newRedisstream(client redis.UniversalClient, server *redisserver.Server, logger watermill.LoggerAdapter) (broker, error) {
	publisher, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: server.Client()}, logger)
	if err != nil {
		return broker{}, fmt.Errorf("create publisher: %w", err)
	}
	subscriber, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
		Client:        server.Client(),
		ConsumerGroup: "mailer",
		// By default, the first read waits for a message for ever, whatever its context.
		DisableIndefiniteInitialBlock: true,
	}, watermill.NopLogger{}) // it would log the end of each read as an error
	if err != nil {
		return broker{}, fmt.Errorf("create subscriber: %w", err)
	}
	return broker{
		publisher: publisher, subscriber: subscriber,
		relay:  relay.Config{Streams: &redisstream.PublisherConfig{Client: client}},
		remark: "The relay moves each message to its stream in one step.",
	}, nil
}
