package redisdelay_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture/dead"
)

func TestTheTokenAlwaysGrowsEvenAfterARequeue(t *testing.T) {
	s := fixture.New(t)
	messages := s.Subscribe(func(c *subConfig) { c.MaxDeliveries = 2 })
	s.Publish("a")
	var tokens []int64
	var attempts []int
	for range 2 {
		for range 2 {
			msg := s.Next(messages)
			d := fixture.Delivery(t, msg)
			tokens, attempts = append(tokens, d.Token), append(attempts, d.Attempt)
			msg.Nack()
		}
		require.Equal(t, 1, dead.Requeue(s, dead.Letters(s, 1)[0].ID))
	}
	s.Expect(messages, "a")
	assert.Equal(t, []int64{1, 2, 3, 4}, tokens)
	assert.Equal(t, []int{1, 2, 1, 2}, attempts)
}

func TestHandlersSeeTheirDelivery(t *testing.T) {
	s := fixture.New(t)
	messages := s.Subscribe()
	start := s.Now()
	require.NoError(t, s.Publisher().Publish(s.Topic, fixture.Delayed("a", 200*time.Millisecond)))

	msg := s.Next(messages)
	first, ok := redisdelay.DeliveryFromContext(msg.Context())
	require.True(t, ok)
	assert.Equal(t, s.Topic, first.Topic)
	assert.Equal(t, redisdelay.DefaultConsumerGroup, first.Group)
	assert.Len(t, first.ID, 26)
	assert.Equal(t, 1, first.Attempt)
	assert.WithinDuration(t, start.Add(200*time.Millisecond), first.DueAt, 150*time.Millisecond)
	assert.WithinDuration(t, s.Now().Add(30*time.Second), first.LeasedUntil, 2*time.Second)
	msg.Nack()

	msg = s.Next(messages)
	second, ok := redisdelay.DeliveryFromContext(msg.Context())
	require.True(t, ok)
	assert.Equal(t, first.ID, second.ID)
	assert.Equal(t, 2, second.Attempt)
	assert.GreaterOrEqual(t, second.DueAt.Sub(first.DueAt), redisdelay.MinRedeliveryDelay)
	msg.Ack()

	_, ok = redisdelay.DeliveryFromContext(context.Background())
	assert.False(t, ok)
}

func TestAMessageContextCarriesValuesAndEndsWithTheSettlement(t *testing.T) {
	type key struct{}
	s := fixture.New(t)
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), key{}, "value"))
	defer cancel()
	messages, err := s.Subscriber().Subscribe(ctx, s.Topic)
	require.NoError(t, err)
	s.Publish("acked", "handled while closing")

	msg := s.Next(messages)
	assert.Equal(t, "value", msg.Context().Value(key{}))
	require.NoError(t, msg.Context().Err())
	msg.Ack()
	s.Ended(msg.Context(), context.Canceled)

	msg = s.Next(messages)
	cancel()
	select {
	case <-msg.Context().Done():
		require.Fail(t, "the end of the subscription must not cancel a handler at once")
	case <-time.After(200 * time.Millisecond):
	}
	msg.Ack()
	s.Closed(messages)
	s.Settled()
}
