package queue

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// topicOf returns a topic with some partitions, for this scene only.
func (r *scene) topicOf(partitions int) *Topic {
	r.T.Helper()
	topic := newStore(r.T, r.Client).Topic(r.partition.Topic())
	require.NoError(r.T, topic.EnsureListed(r.Ctx()))
	_, err := topic.RaisePartitions(r.Ctx(), partitions)
	require.NoError(r.T, err)
	return topic
}

// with selects the fields of a state whose names contain a text. It leaves out times.
func with(state map[string]string, text string) map[string]string {
	list := map[string]string{}
	for field, value := range state {
		if strings.Contains(field, text) {
			list[field] = strings.TrimLeft(value, "0123456789 ")
		}
	}
	return list
}

func TestNewPartitionsInheritPauses(t *testing.T) {
	r := newScene(t)
	r.group("g")
	topic := r.topicOf(1)
	require.NoError(t, topic.Pause(t.Context(), "g", Pause{Reason: "why"}))
	require.NoError(t, topic.Pause(t.Context(), "", Pause{}))
	topic = r.topicOf(3)
	for n := range 3 {
		fields, err := r.Client.HKeys(t.Context(), topic.Partition(n).Key(script.Settings, "")).Result()
		require.NoError(t, err)
		assert.ElementsMatch(t, []string{"paused", "paused:g"}, fields, "partition %d", n)
	}
	require.NoError(t, topic.Resume(t.Context(), "g"))
	require.NoError(t, topic.Resume(t.Context(), ""))
	for n := range 3 {
		exists, err := r.Client.Exists(t.Context(), topic.Partition(n).Key(script.Settings, "")).Result()
		require.NoError(t, err)
		assert.Zero(t, exists, "partition %d", n)
	}
}

func TestAnUnlistedTopicIsNotFound(t *testing.T) {
	r := newScene(t)
	topic := newStore(t, r.Client).Topic(r.partition.Topic())
	require.ErrorIs(t, topic.Pause(t.Context(), "", Pause{}), ErrTopicNotFound)
	require.ErrorIs(t, topic.Resume(t.Context(), ""), ErrTopicNotFound)
	_, err := retire(t, topic, "g", RetireIdle)
	require.ErrorIs(t, err, ErrTopicNotFound)
	assert.Empty(t, r.State())
}

// TestAnUnknownGroupIsNotFound, but a pause that such a group has left behind can be ended.
func TestAnUnknownGroupIsNotFound(t *testing.T) {
	r := newScene(t)
	topic := r.topicOf(3)
	g := topic.Membership("g", GroupOptions{})
	_, err := g.Partitions(t.Context())
	require.NoError(t, err)
	before := r.State()
	check := func(group string) {
		t.Helper()
		require.ErrorIs(t, topic.Pause(t.Context(), group, Pause{}), ErrGroupNotFound)
		require.ErrorIs(t, topic.Resume(t.Context(), group), ErrGroupNotFound)
	}
	check("G")
	for n := range 3 { // only the first one decides
		require.NoError(t, r.Client.HSet(t.Context(), topic.Partition(n).Key(script.Settings, ""), "paused:G", "0 1 {}").Err())
	}
	require.NoError(t, topic.Resume(t.Context(), "G"))
	assert.Equal(t, before, r.State())
	_, err = retire(t, topic, "g", RetireIdle)
	require.NoError(t, err)
	before = r.State()
	check("g")
	assert.Equal(t, before, r.State())
}

func TestAPauseReachesPartitionsWithoutTheGroup(t *testing.T) {
	r := newScene(t)
	topic := r.topicOf(2)
	r.group("g") // in the first one only
	require.NoError(t, topic.Pause(t.Context(), "g", Pause{}))
	other := r.in(topic.Partition(1))
	assert.Equal(t, map[string]string{"settings paused:g": "{}"}, with(other.State(), "paused"))
	require.NoError(t, topic.Resume(t.Context(), "g"))
	assert.Empty(t, with(other.State(), "paused"))
}
