package redisdelay_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// TestPubSub is the short form of Watermill's suite for all Pub/Subs. Package
// internal/verify/acceptance runs it in full: with messages due at once and with delayed ones,
// on one server, on Redis Cluster and behind Sentinel, over restarts of the server.
func TestPubSub(t *testing.T) {
	features := tests.Features{
		ConsumerGroups:                      true,
		GuaranteedOrder:                     true,
		GuaranteedOrderWithSingleSubscriber: true,
		Persistent:                          true,
		ForceShort:                          true,
	}
	tests.TestPubSub(t, features, newPubSub, newPubSubOfGroup)
}

func newPubSub(t *testing.T) (message.Publisher, message.Subscriber) {
	return newPubSubOfGroup(t, "group")
}

func newPubSubOfGroup(t *testing.T, group string) (message.Publisher, message.Subscriber) {
	t.Helper()
	client, logger := redistest.Client(t), watermill.NewStdLogger(false, false)
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, logger)
	require.NoError(t, err)
	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client: client, ConsumerGroup: group, CloseTimeout: time.Second, // the suite closes while it holds messages
	}, logger)
	require.NoError(t, err)
	t.Cleanup(func() { // not all of the suite's tests do
		require.NoError(t, publisher.Close())
		require.NoError(t, fixture.Lenient{Subscriber: subscriber}.Close())
	})
	return publisher, fixture.Lenient{Subscriber: subscriber}
}
