package relay_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/relay"
)

// TestPubSubRelayedToGoChannel is Watermill's suite with every message delayed and then
// relayed to Watermill's own Pub/Sub in memory, with the features of that one.
func TestPubSubRelayedToGoChannel(t *testing.T) {
	tests.TestPubSub(t, tests.Features{ForceShort: true, ExactlyOnceDelivery: true, RequireSingleInstance: true}, func(t *testing.T) (message.Publisher, message.Subscriber) {
		target := gochannel.NewGoChannel(
			gochannel.Config{OutputChannelBuffer: 10_000, Persistent: true}, watermill.NewStdLogger(false, false),
		)
		client, prefix := redistest.Client(t), watermill.NewShortUUID()
		runRelay(t, relay.Config{Client: client, Prefix: prefix, Target: target})
		return relayPublisher(t, client, prefix, target), target
	}, nil)
}

// TestPubSubRelayedToRedisStreams is the suite with stock redisstream behind the relay, with
// its features.
func TestPubSubRelayedToRedisStreams(t *testing.T) {
	features := tests.Features{
		ForceShort: true, ConsumerGroups: true, GuaranteedOrderWithSingleSubscriber: true, Persistent: true, NewSubscriberReceivesOldMessages: true,
	}
	for name, form := range map[string]func(client redis.UniversalClient, c *relay.Config){
		"in one step": func(client redis.UniversalClient, c *relay.Config) {
			c.Streams = &redisstream.PublisherConfig{Client: client}
		},
		"published": func(client redis.UniversalClient, c *relay.Config) {
			c.Target, _ = redisstream.NewPublisher(redisstream.PublisherConfig{Client: client}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			prefix := watermill.NewShortUUID()
			config := relay.Config{Client: redistest.Client(t), Prefix: prefix}
			form(config.Client, &config)
			runRelay(t, config)
			create := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
				target, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: redistest.Client(t)}, nil)
				require.NoError(t, err)
				subscriber, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
					Client: redistest.Client(t), ConsumerGroup: group, DisableIndefiniteInitialBlock: true,
					BlockTime: 10 * time.Millisecond, ClaimInterval: 3 * time.Second, MaxIdleTime: 5 * time.Second,
				}, nil)
				require.NoError(t, err)
				publisher := relayPublisher(t, redistest.Client(t), prefix, target)
				t.Cleanup(func() { _ = subscriber.Close() }) // not all of the suite's tests do
				return publisher, subscriber
			}
			tests.TestPubSub(t, features, func(t *testing.T) (message.Publisher, message.Subscriber) {
				return create(t, watermill.NewShortUUID())
			}, create)
		})
	}
}

// relayPublisher is a publisher that delays all messages.
func relayPublisher(t *testing.T, client redis.UniversalClient, prefix string, target message.Publisher) message.Publisher {
	t.Helper()
	delayed, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{
		Client: client, Prefix: prefix,
		Delay: delay.PublisherConfig{DefaultDelayGenerator: func(delay.DefaultDelayGeneratorParams) (delay.Delay, error) {
			return delay.For(100 * time.Millisecond), nil
		}},
	}, nil)
	require.NoError(t, err)
	publisher, err := relay.NewPublisher(relay.PublisherConfig{Target: target, Delayed: delayed})
	require.NoError(t, err)
	t.Cleanup(func() { _ = publisher.Close() })
	return publisher
}

// runRelay runs a relay until the test ends.
func runRelay(t *testing.T, config relay.Config) {
	t.Helper()
	config.DiscoveryInterval, config.CloseTimeout = 100*time.Millisecond, time.Second
	r, err := relay.New(config, watermill.NewStdLogger(false, false))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
}
