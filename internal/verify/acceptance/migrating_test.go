package acceptance

import (
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

// The code of docs/use/migrating.md, as the tests use it.

// recipe: the constructors
func newPubSub(client redis.UniversalClient, logger watermill.LoggerAdapter) (message.Publisher, message.Subscriber, error) {
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, logger)
	if err != nil {
		return nil, nil, err
	}
	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client:        client,
		ConsumerGroup: redisdelay.Broadcast, // if the name was empty; otherwise keep it
	}, logger)
	return publisher, subscriber, err
}

// end of recipe

// recipe: a shared publisher
type leftOpen struct{ message.Publisher } // for handlers that share a publisher

func (leftOpen) Close() error { return nil } // the program closes the publisher after the Router

// end of recipe

func TestTheMigratedPubSubFansOut(t *testing.T) {
	s := fixture.New(t)
	publisher, one, err := newPubSub(s.Client, s.Log)
	require.NoError(t, err)
	_, two, err := newPubSub(s.Client, s.Log)
	require.NoError(t, err)
	var all []<-chan *message.Message
	for _, sub := range []message.Subscriber{one, two} {
		messages, err := sub.Subscribe(t.Context(), s.Topic)
		require.NoError(t, err)
		all = append(all, messages)
	}
	require.NoError(t, publisher.Publish(s.Topic, message.NewMessage("a", nil)))
	for _, messages := range all {
		s.Expect(messages, "a")
	}
	require.NoError(t, errors.Join(one.Close(), two.Close(), publisher.Close()))
	assert.Empty(t, leftovers(s))
}

// TestAStoppedHandlerLeavesTheSharedPublisherOpen, so that the others continue.
func TestAStoppedHandlerLeavesTheSharedPublisherOpen(t *testing.T) {
	s := fixture.New(t)
	stream, out := s.Beside("-stream"), s.Beside("-out")
	publisher := leftOpen{s.Publisher()}
	router := newRouter(s)
	pack := func(msg *message.Message) ([]*message.Message, error) { return message.Messages{msg.Copy()}, nil }
	old := router.AddHandler("old", stream.Topic, stream.Subscriber(), out.Topic, publisher, pack)
	router.AddHandler("new", s.Topic, s.Subscriber(), out.Topic, publisher, pack)
	run(s, router)
	old.Stop()
	fixture.Wait(t, old.Stopped(), "the old handler ends")
	s.Publish("a")
	out.Expect(out.Subscribe(), "a")
	s.Settled()
}
