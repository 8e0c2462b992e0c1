package relay_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/relay"
)

// TestPubSubRelayedToGoChannel is Watermill's suite with every message delayed and then
// relayed to Watermill's own Pub/Sub in memory, with the features of that one.
func TestPubSubRelayedToGoChannel(t *testing.T) {
	t.Parallel()
	tests.TestPubSub(t, tests.Features{ForceShort: true, ExactlyOnceDelivery: true, RequireSingleInstance: true}, func(t *testing.T) (message.Publisher, message.Subscriber) {
		target := gochannel.NewGoChannel(
			gochannel.Config{OutputChannelBuffer: 10_000, Persistent: true}, watermill.NewStdLogger(false, false),
		)
		relays := &relays{t: t, config: relay.Config{Client: redistest.Client(t), Prefix: watermill.NewShortUUID(), Target: target}}
		return relays.publisher(t, target), target
	}, nil)
}

// TestPubSubRelayedToRedisStreams is the suite with stock redisstream behind a relay that moves messages in one step, with
// its features.
func TestPubSubRelayedToRedisStreams(t *testing.T) {
	t.Parallel()
	features := tests.Features{
		ForceShort: true, ConsumerGroups: true, GuaranteedOrderWithSingleSubscriber: true, Persistent: true, NewSubscriberReceivesOldMessages: true,
	}
	client := redistest.Client(t)
	relays := &relays{t: t, config: relay.Config{
		Client: client, Prefix: watermill.NewShortUUID(), Streams: &redisstream.PublisherConfig{Client: client},
	}}
	create := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
		target, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: redistest.Client(t)}, nil)
		require.NoError(t, err)
		subscriber, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
			Client: redistest.Client(t), ConsumerGroup: group, DisableIndefiniteInitialBlock: true,
			BlockTime: 10 * time.Millisecond, ClaimInterval: 3 * time.Second, MaxIdleTime: 5 * time.Second,
		}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = subscriber.Close() }) // not all of the suite's tests do
		return relays.publisher(t, target), subscriber
	}
	tests.TestPubSub(t, features, func(t *testing.T) (message.Publisher, message.Subscriber) {
		return create(t, watermill.NewShortUUID())
	}, create)
}

// relays run a relay for each topic that is published to, until their test ends.
type relays struct {
	t       *testing.T
	config  relay.Config // without the Topics
	started sync.Map     // topics
}

// relayed is a publisher whose topics are relayed.
type relayed struct {
	message.Publisher
	relays *relays
}

// publisher returns a publisher that delays all messages.
func (r *relays) publisher(t *testing.T, target message.Publisher) message.Publisher {
	t.Helper()
	delayed, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{
		Client: redistest.Client(t), Prefix: r.config.Prefix,
		Delay: delay.PublisherConfig{DefaultDelayGenerator: func(delay.DefaultDelayGeneratorParams) (delay.Delay, error) {
			return delay.For(100 * time.Millisecond), nil
		}},
	}, nil)
	require.NoError(t, err)
	publisher, err := relay.NewPublisher(relay.PublisherConfig{Target: target, Delayed: delayed})
	require.NoError(t, err)
	t.Cleanup(func() { _ = publisher.Close() })
	return relayed{publisher, r}
}

func (p relayed) Publish(topic string, messages ...*message.Message) error {
	if _, started := p.relays.started.LoadOrStore(topic, true); !started {
		if err := p.relays.run(topic); err != nil {
			return err
		}
	}
	return p.Publisher.Publish(topic, messages...)
}

// run relays a topic.
func (r *relays) run(topic string) error {
	config := r.config
	config.Topics, config.CloseTimeout = []string{topic}, time.Second
	made, err := relay.New(config, watermill.NewStdLogger(false, false))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- made.Run(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		assert.NoError(r.t, <-ended)
	})
	return nil
}
