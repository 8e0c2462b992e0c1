package redisdelay_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

func TestDeadLettersCanBeSeenRequeuedAndDiscarded(t *testing.T) {
	b := newBench(t)
	sub := b.subscriber(func(c *subConfig) {
		c.MaxDeliveries = 2
		c.NackDelay = func(int) time.Duration { return 0 }
	})
	messages, err := sub.Subscribe(t.Context(), b.topic)
	require.NoError(t, err)
	b.publish("a", "b")
	for range 4 {
		b.next(messages).Nack()
	}
	var letters []redisdelay.DeadLetter
	require.Eventually(t, func() bool {
		letters, err = sub.DeadLetters(t.Context(), b.topic, 10)
		return err == nil && len(letters) == 2
	}, soon, 5*time.Millisecond)
	assert.ElementsMatch(t, []string{"a", "b"}, []string{letters[0].Message.UUID, letters[1].Message.UUID})
	assert.Equal(t, "not acked in 2 deliveries", letters[0].Reason)
	assert.WithinDuration(t, b.redisTime(), letters[0].BuriedAt, 5*time.Second)

	n, err := sub.RequeueDeadLetters(t.Context(), b.topic, letters[0].ID, "unknown")
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	msg := b.next(messages)
	assert.Equal(t, letters[0].Message.UUID, msg.UUID)
	assert.Equal(t, 1, attempt(t, msg))
	msg.Ack()

	n, err = sub.DiscardDeadLetters(t.Context(), b.topic, letters[0].ID, letters[1].ID)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	b.settled()

	_, err = sub.DeadLetters(t.Context(), b.topic, 0)
	require.Error(t, err)
	_, err = sub.DeadLetters(t.Context(), "", 1)
	require.ErrorIs(t, err, redisdelay.ErrEmptyTopic)
	_, err = sub.DiscardDeadLetters(t.Context(), "", "a")
	require.ErrorIs(t, err, redisdelay.ErrEmptyTopic)
}
