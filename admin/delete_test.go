package admin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

func TestADeletedTopicLeavesNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, s *scene, partitions int) {
		s.deadLetters(partitions, "g", numbered(20)...)
		s.publish(time.Hour, partitions, "x", "y", "z")
		s.groups(partitions, "h")
		require.NoError(t, s.admin.Pause(t.Context(), s.Topic, "g", redisdelay.PauseOptions{}))
		require.NoError(t, fixture.ErrOf(s.admin.RetireGroup(t.Context(), s.Topic, "h", redisdelay.RetireOptions{})))
		other := *s
		other.Scene = s.Beside(" beside")
		other.publish(time.Hour, partitions, "x")

		require.NoError(t, s.admin.DeleteTopic(t.Context(), s.Topic, DeleteOptions{}))
		keys, err := s.Keys(t.Context())
		require.NoError(t, err)
		assert.Empty(t, keys)
		require.ErrorIs(t, s.admin.DeleteTopic(t.Context(), s.Topic, DeleteOptions{}), ErrTopicNotFound)
		_, err = s.admin.Count(t.Context(), s.Topic, Query{})
		require.ErrorIs(t, err, ErrTopicNotFound)
		topics, err := s.admin.Topics(t.Context())
		require.NoError(t, err)
		assert.NotContains(t, topics, Topic{Name: s.Topic, Version: "2"})
		assert.Contains(t, topics, Topic{Name: other.Topic, Version: "1"})
		assert.Equal(t, 1, other.count(Query{}))

		s.publish(time.Hour, partitions, "x")
		assert.Equal(t, 1, s.count(Query{}), "the topic begins anew")
	})
	s := newScene(t)
	require.ErrorIs(t, s.admin.DeleteTopic(t.Context(), "", DeleteOptions{}), redisdelay.ErrEmptyTopic)
}

// TestATopicThatAnotherProcessHasDeletedIsListedAgain by what puts messages there.
func TestATopicThatAnotherProcessHasDeletedIsListedAgain(t *testing.T) {
	s := newScene(t)
	to := s.beside("/to")
	s.publish(time.Hour, 1, "a", "b")
	for _, key := range []string{"a", "b"} {
		_, err := s.admin.Copy(t.Context(), s.Topic, ByKey(key), to.Topic, nil)
		require.NoError(t, err)
		require.NoError(t, s.another().admin.DeleteTopic(t.Context(), to.Topic, DeleteOptions{}))
	}
}

func TestATopicWithConsumersIsDeletedOnlyByForce(t *testing.T) {
	everywhere(t, func(t *testing.T, s *scene, partitions int) {
		s.publish(time.Hour, partitions, "x")
		messages := s.Subscribe(func(c *redisdelay.SubscriberConfig) { c.LeaseDuration, c.Consumer = time.Second, "host-3" })
		s.Publish("held")
		held := s.Next(messages)
		require.Eventually(t, func() bool {
			groups, err := s.admin.Groups(t.Context(), s.Topic)
			return err == nil && len(groups[0].Consumers) > 0
		}, fixture.Soon, 5*time.Millisecond)
		err := s.admin.DeleteTopic(t.Context(), s.Topic, DeleteOptions{})
		require.ErrorIs(t, err, redisdelay.ErrGroupAlive)
		assert.ErrorContains(t, err, "host-3")
		assert.Equal(t, 1, s.count(Query{}))

		require.NoError(t, s.admin.DeleteTopic(t.Context(), s.Topic, DeleteOptions{Force: true}))
		s.Ended(held.Context(), redisdelay.ErrLeaseLost)
		held.Ack()
		s.Publish("new")
		s.Expect(messages, "new")
	})
}
