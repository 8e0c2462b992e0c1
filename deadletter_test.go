package redisdelay_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/fixture"
)

func TestDeadLettersCanBeSeenRequeuedAndDiscarded(t *testing.T) {
	s := fixture.New(t)
	sub := s.Subscriber(func(c *subConfig) {
		c.MaxDeliveries = 2
		c.NackDelay = func(int) time.Duration { return 0 }
	})
	messages, err := sub.Subscribe(t.Context(), s.Topic)
	require.NoError(t, err)
	s.Publish("a", "b")
	for range 4 {
		s.Next(messages).Nack()
	}
	var letters []redisdelay.DeadLetter
	require.Eventually(t, func() bool {
		letters, err = sub.DeadLetters(t.Context(), s.Topic, 10)
		return err == nil && len(letters) == 2
	}, fixture.Soon, 5*time.Millisecond)
	assert.ElementsMatch(t, []string{"a", "b"}, []string{letters[0].Message.UUID, letters[1].Message.UUID})
	assert.Equal(t, "not acked in 2 deliveries", letters[0].Reason)
	assert.WithinDuration(t, s.Now(), letters[0].BuriedAt, 5*time.Second)

	n, err := sub.RequeueDeadLetters(t.Context(), s.Topic, letters[0].ID, "unknown")
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	msg := s.Next(messages)
	assert.Equal(t, letters[0].Message.UUID, msg.UUID)
	assert.Equal(t, 1, fixture.Delivery(t, msg).Attempt)
	msg.Ack()

	n, err = sub.DiscardDeadLetters(t.Context(), s.Topic, letters[0].ID, letters[1].ID)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	s.Settled()

	_, err = sub.DeadLetters(t.Context(), s.Topic, 0)
	require.Error(t, err)
	_, err = sub.DeadLetters(t.Context(), "", 1)
	require.ErrorIs(t, err, redisdelay.ErrEmptyTopic)
	_, err = sub.DiscardDeadLetters(t.Context(), "", "a")
	require.ErrorIs(t, err, redisdelay.ErrEmptyTopic)
}
