package main

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// These tests show what docs/use/migrating.md says of open issues of redisstream: each does the same to both.

// onStream is a subscription of redisstream, to a stream that is called like the topic of a scene.
type onStream struct {
	*redisstream.Subscriber
	messages <-chan *message.Message
	log      *fixture.Log
}

func subscribeToStream(t *testing.T, s *fixture.Scene, addr string, change func(*redisstream.SubscriberConfig)) onStream {
	t.Helper()
	o := onStream{log: &fixture.Log{}}
	config := redisstream.SubscriberConfig{
		Client: redis.NewClient(&redis.Options{Addr: addr}), ConsumerGroup: group, DisableIndefiniteInitialBlock: true,
	}
	if change != nil {
		change(&config)
	}
	var err error
	o.Subscriber, err = redisstream.NewSubscriber(config, o.log)
	require.NoError(t, err)
	t.Cleanup(func() { _ = o.Close() }) // some have closed it
	o.messages, err = o.Subscribe(context.Background(), s.Topic)
	require.NoError(t, err)
	return o
}

func publishToStream(t *testing.T, s *fixture.Scene, addr string, uuids ...string) {
	t.Helper()
	publisher, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: redis.NewClient(&redis.Options{Addr: addr})}, nil)
	require.NoError(t, err)
	for _, uuid := range uuids {
		require.NoError(t, publisher.Publish(s.Topic, message.NewMessage(uuid, nil)))
	}
	require.NoError(t, publisher.Close())
}

func pending(t *testing.T, s *fixture.Scene) int64 {
	t.Helper()
	p, err := s.Client.XPending(t.Context(), s.Topic, group).Result()
	require.NoError(t, err)
	return p.Count
}

func inGroup(c *redisdelay.SubscriberConfig) { c.ConsumerGroup = group }

// TestAnAckDuringCloseCounts: redisstream leaves the entry pending, so it is delivered again.
func TestAnAckDuringCloseCounts(t *testing.T) {
	server := redistest.New(t)
	s := fixture.NewOn(t, server)
	old := subscribeToStream(t, s, server.Addr, nil)
	publishToStream(t, s, server.Addr, "a")
	msg := s.Next(old.messages)
	require.NoError(t, old.Close())
	msg.Ack()
	assert.Equal(t, int64(1), pending(t, s), "redisstream has become better: tell so in docs/use/migrating.md")

	sub := s.Subscriber(inGroup, func(c *redisdelay.SubscriberConfig) { c.CloseTimeout = fixture.Soon })
	messages, err := sub.Subscribe(t.Context(), s.Topic)
	require.NoError(t, err)
	s.Publish("a")
	msg = s.Next(messages)
	closed := make(chan error, 1)
	go func() { closed <- sub.Close() }()
	select {
	case err := <-closed:
		require.Fail(t, "closed before the ack", "%v", err)
	case <-time.After(100 * time.Millisecond):
	}
	msg.Ack()
	require.NoError(t, <-closed)
	s.Settled()
	s.Idle(s.Subscribe(inGroup))
}

// TestASubscriberSurvivesAFlush of all data: redisstream reads from the deleted group, until it is restarted.
func TestASubscriberSurvivesAFlush(t *testing.T) {
	t.Parallel() // it mostly waits
	server := redistest.New(t)
	s := fixture.NewOn(t, server)
	old := subscribeToStream(t, s, server.Addr, nil)
	messages := s.Subscribe(inGroup)
	publishToStream(t, s, server.Addr, "before")
	s.Publish("before")
	for _, list := range []<-chan *message.Message{old.messages, messages} {
		s.Next(list).Ack()
	}
	s.Settled()
	require.NoError(t, s.Client.FlushAll(t.Context()).Err()) // this server is the test's own
	publishToStream(t, s, server.Addr, "after")
	s.Publish("after")
	msg := s.Next(messages)
	assert.Equal(t, "after", msg.UUID)
	msg.Ack()
	require.Eventually(t, func() bool { return old.log.Count("NOGROUP") > 1 }, fixture.Soon, 10*time.Millisecond)
	s.Idle(old.messages)
}

// TestADeletedMessageDoesNotBlockOthers: it is deleted while it is in delivery. Redisstream's entry stays pending as long as its
// consumer lives; here, it is dead-lettered without a body, and the other messages are delivered.
func TestADeletedMessageDoesNotBlockOthers(t *testing.T) {
	server := redistest.New(t)
	s := fixture.NewOn(t, server)
	publisher := s.Publisher()
	sub := s.Subscriber(inGroup, func(c *redisdelay.SubscriberConfig) { c.MaxInFlight = 1 })
	require.NoError(t, sub.SubscribeInitialize(s.Topic))
	require.NoError(t, publisher.Publish(s.Topic, fixture.Delayed("gone", 200*time.Millisecond), fixture.Delayed("there", 201*time.Millisecond)))
	ids := s.Client.ZRange(t.Context(), s.Key("scheduled"), 0, -1).Val()
	require.Len(t, ids, 2)
	require.NoError(t, s.Client.HDel(t.Context(), s.Key("messages"), ids[0]).Err())
	messages, err := sub.Subscribe(t.Context(), s.Topic)
	require.NoError(t, err)
	msg := s.Next(messages)
	assert.Equal(t, "there", msg.UUID)
	msg.Ack()
	s.Idle(messages)
	require.Eventually(t, func() bool {
		return s.Client.ZCard(t.Context(), s.Key("scheduled")).Val() == 0
	}, fixture.Soon, 5*time.Millisecond, "it is in no set")
}

// TestAMessageBehindASlowOneIsHandledOnce: redisstream reads the next entry while the handler is busy, and
// another consumer claims it when it is idle for long, and so is the one that the handler works on.
func TestAMessageBehindASlowOneIsHandledOnce(t *testing.T) {
	t.Parallel() // it mostly waits
	const idle = 300 * time.Millisecond
	server := redistest.New(t)
	s := fixture.NewOn(t, server)
	claiming := func(c *redisstream.SubscriberConfig) { c.MaxIdleTime, c.ClaimInterval = idle, idle/3 }
	slow := subscribeToStream(t, s, server.Addr, claiming)
	publishToStream(t, s, server.Addr, "a", "b")
	busy := s.Next(slow.messages) // its handler takes longer than MaxIdleTime
	quick := subscribeToStream(t, s, server.Addr, claiming)
	twice := map[string]bool{}
	for len(twice) < 2 {
		msg := s.Next(quick.messages)
		twice[msg.UUID] = true
		msg.Ack()
	}
	busy.Ack()
	msg := s.Next(slow.messages)
	assert.Equal(t, "b", msg.UUID, "it has waited in the buffer, and is delivered although another consumer has acked it")
	msg.Ack()

	const lease = 5 * time.Second // two thirds are left at each moment, so that a busy machine extends it in time
	short := func(c *redisdelay.SubscriberConfig) { c.LeaseDuration, c.MaxInFlight = lease, 1 }
	first := s.Subscribe(inGroup, short)
	s.Publish("a", "b")
	busy = s.Next(first)
	second := s.Subscribe(inGroup, short)
	msg = s.Next(second)
	assert.Equal(t, "b", msg.UUID)
	msg.Ack()
	select {
	case <-time.After(3 * lease / 2):
	case <-first:
		require.Fail(t, "delivered to the first again")
	case <-second:
		require.Fail(t, "delivered to the second again")
	}
	busy.Ack()
	s.Settled()
}
