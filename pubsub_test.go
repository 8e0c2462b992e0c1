package redisdelay_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/redistest"
)

// TestPubSub is Watermill's universal suite, with messages due at once.
//
// Its TestReconnect notes what was published in a goroutine of its own, without a
// lock. So it may report a message that was delivered at once as "extra", and the
// race detector finds the race in test_pubsub.go. It is left out here, and in
// TestPubSubDelayed under -race; `make test` runs that one a second time without.
// TestARestartLosesNothing shows the same with messages due at once, under -race.
func TestPubSub(t *testing.T) {
	s := newSuite(t, 0)
	s.features.RestartServiceCommand = nil
	tests.TestPubSub(t, s.features, s.pubSub, s.groupPubSub)
}

// TestPubSubDelayed is the whole suite with every message delayed.
func TestPubSubDelayed(t *testing.T) {
	s := newSuite(t, 100*time.Millisecond)
	if raceEnabled {
		s.features.RestartServiceCommand = nil
	}
	tests.TestPubSub(t, s.features, s.pubSub, s.groupPubSub)
}

// suite makes the Pub/Subs of one run of Watermill's suite, on a server of its
// own that keeps what it has acknowledged over a crash.
type suite struct {
	server   *redistest.Server
	delay    time.Duration
	features tests.Features
}

func newSuite(t *testing.T, by time.Duration) *suite {
	t.Helper()
	server := redistest.New(t, redistest.Durable...)
	return &suite{server: server, delay: by, features: tests.Features{
		ConsumerGroups:                      true,
		GuaranteedOrder:                     true,
		GuaranteedOrderWithSingleSubscriber: true,
		Persistent:                          true,
		RestartServiceCommand:               server.RestartCommand(),
	}}
}

func (s *suite) pubSub(t *testing.T) (message.Publisher, message.Subscriber) {
	return s.groupPubSub(t, "group")
}

func (s *suite) groupPubSub(t *testing.T, group string) (message.Publisher, message.Subscriber) {
	t.Helper()
	client := s.server.Client(t)
	config := redisdelay.PublisherConfig{Client: client}
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
	}, logger)
	require.NoError(t, err)
	t.Cleanup(func() { // not all of the suite's tests do
		require.NoError(t, publisher.Close())
		require.NoError(t, subscriber.Close())
	})
	return publisher, subscriber
}
