package acceptance

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// TestPubSub is Watermill's universal suite, with messages due at once.
//
// Its TestReconnect records published messages in another goroutine, without a lock. So
// it may report a message that was delivered at once as "extra", and the race detector
// finds the race in test_pubsub.go. It is left out here, and in TestPubSubDelayed under
// -race; `make test RACE=-race` runs that one a second time without the detector. TestARestartOfRedisLosesNothing
// shows the same with messages due at once, under -race.
func TestPubSub(t *testing.T) {
	t.Parallel() // it mostly waits
	s := newSuite(t, 0)
	s.features.RestartServiceCommand, s.features.ForceShort = nil, false
	tests.TestPubSub(t, s.features, s.pubSub, s.groupPubSub)
}

// TestPubSubDelayed is the whole suite with every message delayed.
func TestPubSubDelayed(t *testing.T) {
	t.Parallel() // it mostly waits
	s := newSuite(t, 100*time.Millisecond)
	if fixture.RaceDetector {
		s.features.RestartServiceCommand = nil
	}
	tests.TestPubSub(t, s.features, s.pubSub, s.groupPubSub)
}

// TestPubSubCluster is the suite on Redis Cluster. Failovers are in internal/verify/chaos.
func TestPubSubCluster(t *testing.T) {
	t.Parallel() // it mostly waits
	cluster := redistest.SharedCluster(t)
	client := func(t *testing.T) redis.UniversalClient { return cluster.Client(t) }
	t.Run("one partition", func(t *testing.T) {
		t.Parallel()
		s := &suite{client: client, features: features}
		tests.TestPubSub(t, s.features, s.pubSub, s.groupPubSub)
	})
	t.Run("8 partitions", func(t *testing.T) {
		t.Parallel()
		s := &suite{client: client, features: features, partitions: 8}
		// Order holds only within a partition; see TestMessagesOfAKeyShareAPartitionInOrder in internal/publish.
		s.features.GuaranteedOrder = false
		s.features.GuaranteedOrderWithSingleSubscriber = false
		tests.TestPubSub(t, s.features, s.pubSub, s.groupPubSub)
	})
}

// TestPubSubSentinel is the suite on a master that Sentinel watches. Failovers are
// in internal/verify/chaos.
func TestPubSubSentinel(t *testing.T) {
	t.Parallel() // it mostly waits
	sentinel := redistest.SharedSentinel(t)
	s := &suite{client: func(t *testing.T) redis.UniversalClient { return sentinel.Client(t) }, features: features}
	tests.TestPubSub(t, s.features, s.pubSub, s.groupPubSub)
}

var features = tests.Features{
	ConsumerGroups:                      true,
	GuaranteedOrder:                     true,
	GuaranteedOrderWithSingleSubscriber: true,
	Persistent:                          true,
	ForceShort:                          !allInFull,
}

// suite makes the Pub/Subs of one run of Watermill's suite.
type suite struct {
	client     func(t *testing.T) redis.UniversalClient
	delay      time.Duration
	partitions int
	features   tests.Features
}

// newSuite starts a server that loses nothing acknowledged in a crash.
func newSuite(t *testing.T, by time.Duration) *suite {
	t.Helper()
	server := redistest.New(t, redistest.Durable...)
	s := &suite{delay: by, features: features}
	s.client = func(t *testing.T) redis.UniversalClient { return server.Client(t) }
	s.features.RestartServiceCommand = server.RestartCommand()
	return s
}

func (s *suite) pubSub(t *testing.T) (message.Publisher, message.Subscriber) {
	return s.groupPubSub(t, "group")
}

func (s *suite) groupPubSub(t *testing.T, group string) (message.Publisher, message.Subscriber) {
	t.Helper()
	client := s.client(t)
	config := redisdelay.PublisherConfig{Client: client, Partitions: s.partitions}
	if s.delay > 0 {
		config.Delay.DefaultDelayGenerator = func(delay.DefaultDelayGeneratorParams) (delay.Delay, error) {
			return delay.For(s.delay), nil
		}
	}
	logger := watermill.NewStdLogger(false, false)
	publisher, err := redisdelay.NewPublisher(config, logger)
	require.NoError(t, err)
	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client:        client,
		ConsumerGroup: group,
		CloseTimeout:  time.Second,                                              // the suite closes while it holds messages
		NackDelay:     func(int) time.Duration { return 50 * time.Millisecond }, // it nacks each message six times
	}, logger)
	require.NoError(t, err)
	t.Cleanup(func() { // not all of the suite's tests do
		require.NoError(t, publisher.Close())
		require.NoError(t, fixture.Lenient{Subscriber: subscriber}.Close())
	})
	return publisher, fixture.Lenient{Subscriber: subscriber}
}
