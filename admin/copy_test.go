package admin

import (
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

// contents are what entries have, as text, without what depends on the topic.
func contents(entries []Entry) (list []string) {
	for _, e := range entries {
		msg := e.Content.Message
		list = append(list, fmt.Sprint(e.ID, e.At.UnixMilli(), msg.UUID, msg.Metadata, string(msg.Payload)))
	}
	return list
}

func TestACopyHasAllOfItsOriginal(t *testing.T) {
	everywhere(t, func(t *testing.T, s *scene, partitions int) {
		to := s.beside("/to")
		s.publish(time.Hour, partitions, append(numbered(30), "", "", "")...)
		want := s.all(Query{})
		to.publish(time.Hour, partitions, "k00007")
		require.Len(t, want, 33)
		var told []Progress
		all := Matching(Query{})
		s.unchanged(func() {
			got, err := s.admin.Copy(t.Context(), s.Topic, all, to.Topic, func(p Progress) { told = append(told, p) })
			require.NoError(t, err)
			assert.Equal(t, []int{32, 1}, []int{got.Done, got.Skipped})
			require.ErrorIs(t, got.Last, ErrKeyInUse)
			assert.ErrorContains(t, got.Last, "k00007")
			require.NotEmpty(t, told)
			assert.Equal(t, 33, told[len(told)-1].Done+told[len(told)-1].Skipped)
		})
		var copies, originals []Entry
		for _, e := range to.all(Query{}) {
			if e.Key != "k00007" {
				copies = append(copies, e)
			}
		}
		for _, e := range want {
			if e.Key != "k00007" {
				originals = append(originals, e)
			}
		}
		assert.ElementsMatch(t, contents(originals), contents(copies))

		to.groups(partitions, "t")
		_, err := to.admin.DeliverNow(t.Context(), to.Topic, all, nil)
		require.NoError(t, err)
		assert.Len(t, to.drained(partitions, "t"), 33)
		got, err := s.admin.Copy(t.Context(), s.Topic, all, to.Topic, nil)
		require.NoError(t, err)
		assert.Equal(t, []int{1, 32}, []int{got.Done, got.Skipped}, "the others were stored before, and are done")
		require.Len(t, to.all(Query{}), 1)
	})
}

func TestSomeAreCopiedAndMovedByTheirIDsAndKeys(t *testing.T) {
	everywhere(t, func(t *testing.T, s *scene, partitions int) {
		to := s.beside("/to")
		s.publish(time.Hour, partitions, numbered(10)...)
		s.deadLetters(partitions, "g", "d1", "d2")
		s.groups(partitions, "h")
		list, dead := s.all(Query{}), s.all(Query{In: Dead})
		byID, byKey := ByID(list[0].ID, "unknown", dead[0].ID), ByKey(list[1].Key, "nobody's")
		run := func(which Selection) (Progress, error) {
			return s.admin.Copy(t.Context(), s.Topic, which, to.Topic, nil)
		}
		got, err := both(run, byID, byKey)
		require.NoError(t, err)
		assert.Equal(t, []int{3, 2}, []int{got.Done, got.Skipped})
		require.ErrorIs(t, got.Last, ErrMessageNotFound)
		assert.ElementsMatch(t, idsIn([]Entry{list[0], list[1], dead[0]}), idsIn(to.all(Query{})))

		run = func(which Selection) (Progress, error) {
			return s.admin.Move(t.Context(), s.Topic, which, to.Topic, nil)
		}
		got, err = both(run, byID, byKey)
		require.NoError(t, err)
		assert.Equal(t, []int{3, 2}, []int{got.Done, got.Skipped})
		assert.Len(t, s.all(Query{}), 8)
		assert.Equal(t, idsIn(dead[1:]), idsIn(s.all(Query{In: Dead})))
		assert.Len(t, to.all(Query{}), 3, "they were copied before")

		other := ByID(dead[1].ID).OfGroup("h")
		got, err = s.admin.Move(t.Context(), s.Topic, other, to.Topic, nil)
		require.NoError(t, err)
		assert.Equal(t, 1, got.Skipped, "it is a dead letter of another group")
		got, err = s.admin.Move(t.Context(), s.Topic, other.OfGroup("g"), to.Topic, nil)
		require.NoError(t, err)
		assert.Equal(t, Progress{Done: 1}, got)
	})
}

// TestAMessageMayGoToAndFro between two topics.
func TestAMessageMayGoToAndFro(t *testing.T) {
	s := newScene(t)
	to := s.beside("/to")
	s.publish(time.Hour, 1, "k")
	want := contents(s.all(Query{}))
	all := Matching(Query{})
	for range 3 {
		got, err := s.admin.Move(t.Context(), s.Topic, all, to.Topic, nil)
		require.NoError(t, err)
		require.Equal(t, Progress{Done: 1}, got)
		got, err = s.admin.Move(t.Context(), to.Topic, all, s.Topic, nil)
		require.NoError(t, err)
		require.Equal(t, Progress{Done: 1}, got)
	}
	assert.Equal(t, want, contents(s.all(Query{})))
	assert.Empty(t, to.all(Query{}))
}

// TestAMessageThatGroupsGiveAwayIsStoredOnceByAMove, and again by the next if it is done by then.
func TestAMessageThatGroupsGiveAwayIsStoredOnceByAMove(t *testing.T) {
	s := newScene(t)
	to := s.beside("/to")
	for _, name := range []string{"h", "i", "j"} {
		s.groups(1, name)
	}
	s.deadLetters(1, "g", "k")
	for _, name := range []string{"h", "i", "j"} {
		g := s.group(0, name)
		s.bury(g, "bad", s.claim(g, "c", 1, "")...)
	}
	to.publish(time.Hour, 1, "other")
	to.groups(1, "t")
	move := func(group string, between func(Progress)) Progress {
		got, err := s.admin.Move(t.Context(), s.Topic, Matching(Query{In: Dead, Group: group}), to.Topic, between)
		require.NoError(t, err)
		return got
	}
	require.Equal(t, Progress{Done: 1}, move("g", nil))
	require.Equal(t, Progress{Done: 1}, move("h", nil))
	assert.Equal(t, []string{"k"}, to.drained(1, "t"))
	var delivered []string
	require.Equal(t, Progress{Done: 2}, move("", func(Progress) { delivered = append(delivered, to.drained(1, "t")...) }))
	assert.Equal(t, []string{"k"}, delivered)
	assert.Empty(t, s.all(Query{In: Dead}))
}

// TestTheMetadataOfTheLastNackGoesAlong with a message.
func TestTheMetadataOfTheLastNackGoesAlong(t *testing.T) {
	s := newScene(t)
	to := s.beside("/to")
	s.publish(0, 1, "k")
	g := s.group(0, "g")
	claimed := s.claim(g, "c", 1, "")[0]
	nack := queue.Nack{Delivery: queue.Delivery{ID: claimed.ID, Token: claimed.Token}, Delay: time.Hour, Metadata: changedMetadata(t)}
	_, _, err := g.Nack(t.Context(), 0, []queue.Nack{nack})
	require.NoError(t, err)
	got, err := s.admin.Move(t.Context(), s.Topic, Matching(Query{In: Waiting, Group: "g"}), to.Topic, nil)
	require.NoError(t, err)
	require.Equal(t, Progress{Done: 1}, got)
	msg := to.all(Query{In: Waiting})[0].Content.Message
	assert.Equal(t, message.Metadata{"tries": "3"}, msg.Metadata)
	assert.Equal(t, "uuid 0", msg.UUID)
	assert.Equal(t, "payload of k", string(msg.Payload))
}

// changedMetadata is what a Nack leaves.
func changedMetadata(t *testing.T) []byte {
	t.Helper()
	msg := message.NewMessage("", nil)
	msg.Metadata.Set("tries", "3")
	body, err := redisdelay.DefaultMarshaler{}.Marshal("", msg)
	require.NoError(t, err)
	return body[4 : len(body)-1] // after the array, the UUID and the length; before the payload
}

func TestCopyAndMoveRefuse(t *testing.T) {
	s := newScene(t)
	to := s.beside("/to")
	s.publish(time.Hour, 1, "k")
	all := Matching(Query{})
	for name, call := range map[string]func(topic string, which Selection, to string) error{
		"copy": func(topic string, which Selection, to string) error {
			return fixture.ErrOf(s.admin.Copy(t.Context(), topic, which, to, nil))
		},
		"move": func(topic string, which Selection, to string) error {
			return fixture.ErrOf(s.admin.Move(t.Context(), topic, which, to, nil))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s.unchanged(func() {
				require.ErrorIs(t, call(s.Topic, all, s.Topic), ErrSameTopic)
				require.ErrorIs(t, call("", all, to.Topic), redisdelay.ErrEmptyTopic)
				require.ErrorIs(t, call(s.Topic, all, ""), redisdelay.ErrEmptyTopic)
				require.ErrorIs(t, call(s.Topic+"x", all, to.Topic), ErrTopicNotFound)
				var query *QueryError
				require.ErrorAs(t, call(s.Topic, ByKey(""), to.Topic), &query)
				require.ErrorAs(t, call(s.Topic, Matching(Query{Limit: -1, In: "everywhere"}), to.Topic), &query)
			})
			_, err := s.admin.Stats(t.Context(), to.Topic)
			require.ErrorIs(t, err, ErrTopicNotFound, "nothing was made")
		})
	}
	var query *QueryError
	require.ErrorAs(t, fixture.ErrOf(s.admin.Move(t.Context(), s.Topic, Matching(Query{In: InDelivery}), to.Topic, nil)), &query)
	assert.Equal(t, "In", query.Field)
}
