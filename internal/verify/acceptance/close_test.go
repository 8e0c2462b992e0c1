package acceptance

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

func TestCloseWaitsForHandlersAndHonorsTheirAcks(t *testing.T) {
	s := fixture.New(t)
	sub := s.Subscriber(closeTimeout(fixture.Soon))
	messages, err := sub.Subscribe(context.Background(), s.Topic)
	require.NoError(t, err)
	s.Publish("a")
	msg := s.Next(messages)
	done := make(chan error, 1)
	go func() { done <- sub.Close() }()
	select {
	case err := <-done:
		require.Fail(t, "closed while a handler was busy", "%v", err)
	case <-msg.Context().Done():
		require.Fail(t, "cancelled a handler that had time left")
	case <-time.After(300 * time.Millisecond):
	}
	msg.Ack()
	require.NoError(t, <-done)
	s.Settled()
}

func TestStopEndsDeliveriesAndLetsHandlersFinish(t *testing.T) {
	s := fixture.New(t)
	subscriber := s.Subscriber(closeTimeout(fixture.Soon))
	messages, err := subscriber.Subscribe(t.Context(), s.Topic)
	require.NoError(t, err)
	s.Publish("a")
	msg := s.Next(messages)
	subscriber.Stop()
	subscriber.Stop()
	_, err = subscriber.Subscribe(t.Context(), s.Topic)
	require.ErrorIs(t, err, redisdelay.ErrSubscriberClosed)
	s.Publish("b")
	s.Idle(messages)
	require.NoError(t, msg.Context().Err(), "its handler may go on")
	msg.Ack()
	s.Closed(messages)
	require.NoError(t, subscriber.Close())
	s.Expect(s.Subscribe(), "b")
	s.Settled()
}
