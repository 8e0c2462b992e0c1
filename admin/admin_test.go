package admin

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

func TestQueryErrorsNameTheInvalidField(t *testing.T) {
	s := newScene(t)
	s.publish(time.Hour, 1, "a", "b")
	now := time.Now()
	other := s.list(Query{Limit: 1}).Cursor
	require.NotEmpty(t, other)
	for _, test := range []struct {
		q     Query
		field string
	}{
		{Query{Set: "somewhere"}, "Set"},
		{Query{Group: "g"}, "Group"},
		{Query{Reason: "x"}, "Reason"},
		{Query{MinAttempts: -1}, "MinAttempts"},
		{Query{From: now, Before: now}, "Before"},
		{Query{Limit: -1}, "Limit"},
		{Query{Limit: MaxLimit + 1}, "Limit"},
		{Query{Cursor: "garbage!"}, "Cursor"},
		{Query{Cursor: "e30"}, "Cursor"},
		{Query{Set: Dead, Cursor: other}, "Cursor"},
		{Query{KeyPrefix: "a", Cursor: other}, "Cursor"},
		{Query{From: now, Cursor: other}, "Cursor"},
	} {
		_, err := s.admin.Entries(t.Context(), s.Topic, test.q)
		var bad *QueryError
		require.ErrorAs(t, err, &bad, "%+v", test.q)
		assert.Equal(t, test.field, bad.Field, "%v", err)
		_, exists := reflect.TypeFor[Query]().FieldByName(bad.Field)
		assert.True(t, exists, bad.Field)
		for _, err := range s.admin.AllEntries(t.Context(), s.Topic, test.q) {
			if test.field != "Limit" {
				require.ErrorAs(t, err, &bad, "%+v", test.q)
			}
		}
	}
	assert.Len(t, s.list(Query{Limit: 500, Cursor: other}).Entries, 1, "the limit may change")
	beside := newSceneWith(t, s.Client)
	beside.publish(time.Hour, 1, "a")
	_, err := s.admin.Entries(t.Context(), beside.Topic, Query{Cursor: other})
	var bad *QueryError
	require.ErrorAs(t, err, &bad)
	assert.Equal(t, fmt.Sprintf("query field Cursor is of topic %q", s.Topic), err.Error())
	err = s.admin.walk(t.Context(), s.Topic, Query{Cursor: other}, func(step) error { return nil })
	require.ErrorAs(t, err, &bad, "a cursor of Entries is not one of an act")
}

// readers are all calls that read a topic.
func (s *scene) readers(topic string) map[string]error {
	ctx, a, q := s.T.Context(), s.admin, Query{Set: Dead}
	errs := map[string]error{}
	_, errs["Entries"] = a.Entries(ctx, topic, q)
	_, errs["Count"] = a.Count(ctx, topic, q)
	_, errs["Stats"] = a.Stats(ctx, StatsOptions{Topics: []string{topic}})
	_, errs["Groups"] = a.Groups(ctx, topic)
	_, errs["Message"] = a.Message(ctx, topic, Ref{ID: "x"})
	_, errs["Explain"] = a.Explain(ctx, topic, Ref{Key: "x"})
	for _, err := range a.AllEntries(ctx, topic, q) {
		errs["All"] = err
	}
	errs["walk"] = a.walk(ctx, topic, q, func(step) error { return nil })
	return errs
}

func TestReadsOfMissingObjectsReturnTypedErrors(t *testing.T) {
	s := newScene(t)
	for name, err := range s.readers(s.Topic) {
		require.ErrorIs(t, err, ErrTopicNotFound, name)
	}
	for name, err := range s.readers("") {
		require.ErrorIs(t, err, redisdelay.ErrEmptyTopic, name)
	}
	s.publish(time.Hour, 1, "a")
	_, err := s.admin.Entries(t.Context(), s.Topic, Query{Set: Dead, Group: "g"})
	require.ErrorIs(t, err, ErrGroupNotFound)
	_, err = s.admin.Count(t.Context(), s.Topic, Query{Set: Dead, Group: "g"})
	require.ErrorIs(t, err, ErrGroupNotFound)
	_, err = s.admin.Message(t.Context(), s.Topic, Ref{ID: "x"})
	require.ErrorIs(t, err, ErrMessageNotFound)
	_, err = s.admin.Message(t.Context(), s.Topic, Ref{Key: "x"})
	require.ErrorIs(t, err, redisdelay.ErrMessageNotFound)
	_, err = s.admin.Message(t.Context(), s.Topic, Ref{})
	require.Error(t, err)

	require.NoError(t, s.Client.HSet(t.Context(), "{redisdelay:topics}", s.Topic, "4").Err())
	for name, err := range s.readers(s.Topic) {
		require.ErrorIs(t, err, redisdelay.ErrProtocolMismatch, name)
	}
	require.NoError(t, s.Client.HDel(t.Context(), "{redisdelay:topics}", s.Topic).Err())
	for name, err := range s.readers(s.Topic) {
		require.ErrorIs(t, err, ErrTopicNotFound, name+": it was deleted meanwhile")
	}
}

func TestErrorsNameAKeyOfAnotherType(t *testing.T) {
	s := newScene(t)
	s.group(0, "g")
	s.publish(time.Hour, 1, "a")
	s.Break("dead:g")
	for name, err := range s.readers(s.Topic) {
		if errors.Is(err, ErrMessageNotFound) && name == "Explain" || name == "walk" {
			continue // no message has the key, so it does not look further; and what calls walk makes its errors public
		}
		var wrong *redisdelay.WrongTypeError
		require.ErrorAs(t, err, &wrong, name)
		assert.Equal(t, s.Key("dead:g"), wrong.Key)
		assert.Equal(t, "zset", wrong.Want)
	}
}

func TestDeleteTopicRemovesAllItsKeys(t *testing.T) {
	everywhere(t, func(t *testing.T, s *scene, partitions int) {
		s.deadMessages(partitions, "g", numbered(20)...)
		s.publish(time.Hour, partitions, "x", "y", "z")
		s.groups(partitions, "h")
		require.NoError(t, s.admin.PauseGroup(t.Context(), s.Topic, "g", redisdelay.Pause{}))
		require.NoError(t, fixture.ErrOf(s.admin.RetireGroup(t.Context(), s.Topic, "h", redisdelay.RetireOptions{})))
		other := s.beside(" beside")
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
		assert.NotContains(t, topics, s.Topic)
		assert.Contains(t, topics, other.Topic)
		assert.Equal(t, 1, other.count(Query{}))

		s.publish(time.Hour, partitions, "x")
		assert.Equal(t, 1, s.count(Query{}), "the topic begins anew")
	})
	s := newScene(t)
	require.ErrorIs(t, s.admin.DeleteTopic(t.Context(), "", DeleteOptions{}), redisdelay.ErrEmptyTopic)
}

// TestImportListsADeletedTopicAgain even if another process deleted it: otherwise, the second DeleteTopic fails.
func TestImportListsADeletedTopicAgain(t *testing.T) {
	s := newScene(t)
	for range 2 {
		_, err := s.admin.Import(t.Context(), s.Topic, strings.NewReader(`{"payload":"x"}`), nil)
		require.NoError(t, err)
		require.NoError(t, s.another().admin.DeleteTopic(t.Context(), s.Topic, DeleteOptions{}))
	}
}

func TestATopicWithConsumersIsDeletedOnlyByForce(t *testing.T) {
	everywhere(t, func(t *testing.T, s *scene, partitions int) {
		s.publish(time.Hour, partitions, "x")
		messages := s.Subscribe(func(c *redisdelay.SubscriberConfig) { c.LeaseDuration, c.ConsumerName = time.Second, "host-3" })
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
		msg := s.Next(messages)
		if msg.UUID == "held" { // this process stood still, and its lease ended before the topic was deleted
			msg.Ack()
			msg = s.Next(messages)
		}
		assert.Equal(t, "new", msg.UUID)
		require.True(t, msg.Ack())
	})
}
