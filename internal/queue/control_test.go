package queue

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// topicOf is a topic with some partitions, for this scene only.
func (r *scene) topicOf(partitions int) *Topic {
	r.T.Helper()
	topic := newStore(r.T, r.Client).Topic(r.partition.Topic())
	require.NoError(r.T, topic.Enlist(r.Ctx()))
	_, err := topic.Raise(r.Ctx(), partitions)
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

func TestAPausedGroupGetsNothingUntilItIsResumed(t *testing.T) {
	r := newScene(t)
	g, h := r.group("g"), r.group("h")
	topic := r.topicOf(1)
	r.push(due("a"), due("b"))
	require.Equal(t, []string{"a#1"}, r.claim(g, "c", 1))
	heard := r.listen(g, "c")
	other := r.listen(h, "c")

	require.NoError(t, topic.Pause(t.Context(), "g", Pause{By: "anna", Reason: "migration"}))
	assert.Equal(t, Hint{Paused: true}, heard())
	claims, err := g.Claim(t.Context(), r.request("c", 10))
	require.NoError(t, err)
	assert.Empty(t, claims.Messages)
	assert.Negative(t, claims.Next, "the pause has no end")
	assert.Equal(t, []string{"a#1", "b#1"}, r.claim(h, "c", 10), "the other group is not paused")
	assert.Equal(t, map[string]string{"settings paused:g": `{"by":"anna","reason":"migration"}`}, with(r.State(), "settings"))

	acked, err := g.Ack(t.Context(), done("a"))
	require.NoError(t, err)
	assert.Empty(t, acked.Stale, "deliveries under way go on")
	r.push(due("c"))
	assert.Zero(t, other(), "publishing goes on, and the pause was not for this group")

	require.NoError(t, topic.Pause(t.Context(), "g", Pause{Reason: "still"}), "twice is no error")
	require.NoError(t, topic.Resume(t.Context(), "g"))
	require.NoError(t, topic.Resume(t.Context(), "g"), "twice is no error")
	for hint := heard(); hint.Paused || hint.Looked; hint = heard() { // after which it is woken
	}
	assert.Equal(t, []string{"b#1", "c#1"}, r.claim(g, "c", 10))
	assert.Empty(t, with(r.State(), "settings"))
}

func TestAPauseOfAllGroupsEndsByItself(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	topic := r.topicOf(1)
	r.push(due("a"))
	require.NoError(t, topic.Pause(t.Context(), "", Pause{Duration: time.Hour}))
	claims, err := g.Claim(t.Context(), r.request("c", 10))
	require.NoError(t, err)
	assert.Empty(t, claims.Messages)
	assert.InDelta(t, time.Hour, claims.Next, float64(time.Minute))
	over := fmt.Sprint(r.Now().UnixMilli(), " 1000 {}")
	require.NoError(t, r.Client.HSet(t.Context(), r.partition.Key(script.Settings, ""), "paused", over).Err())
	assert.Equal(t, []string{"a#1"}, r.claim(g, "c", 10))
}

// TestAPausedGroupTakesOverNoExpiredLease but a repeated claim gets the same answer.
func TestAPausedGroupTakesOverNoExpiredLease(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	topic := r.topicOf(1)
	r.push(due("a"))
	request := r.request("c", 1)
	require.Equal(t, []string{"a#1"}, r.claimWith(g, request))
	require.NoError(t, topic.Pause(t.Context(), "g", Pause{}))
	assert.Equal(t, []string{"a#1"}, r.claimWith(g, request), "the reply was lost")
	r.Expire(g.Name(), "a")
	spent := r.request("d", 1)
	spent.MaxDeliveries = 1
	before := r.State()
	assert.Empty(t, r.claimWith(g, spent))
	assert.Equal(t, before, r.State())
	require.NoError(t, topic.Resume(t.Context(), "g"))
	assert.Equal(t, []string{"a#2/0/1"}, r.claim(g, "d", 1))
}

func TestNewPartitionsKnowThePauses(t *testing.T) {
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

func TestATopicThatIsNotOnTheListIsNotFound(t *testing.T) {
	r := newScene(t)
	topic := newStore(t, r.Client).Topic(r.partition.Topic())
	require.ErrorIs(t, topic.Pause(t.Context(), "", Pause{}), ErrTopicNotFound)
	require.ErrorIs(t, topic.Resume(t.Context(), ""), ErrTopicNotFound)
	_, err := retire(t, topic, "g", RetireIdle)
	require.ErrorIs(t, err, ErrTopicNotFound)
	assert.Empty(t, r.State())
}

// TestAGroupThatTheTopicDoesNotHaveIsNotFound, but a pause that is left of one ends.
func TestAGroupThatTheTopicDoesNotHaveIsNotFound(t *testing.T) {
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

func TestAPauseReachesPartitionsThatDoNotKnowTheGroupYet(t *testing.T) {
	r := newScene(t)
	topic := r.topicOf(2)
	r.group("g") // in the first one only
	require.NoError(t, topic.Pause(t.Context(), "g", Pause{}))
	other := r.in(topic.Partition(1))
	assert.Equal(t, map[string]string{"settings paused:g": "{}"}, with(other.State(), "paused"))
	require.NoError(t, topic.Resume(t.Context(), "g"))
	assert.Empty(t, with(other.State(), "paused"))
}

// TestAPauseThatEndsWhilePartitionsAreAddedEndsInAll is the same for a pause.
func TestAPauseThatEndsWhilePartitionsAreAddedEndsInAll(t *testing.T) {
	r := newScene(t)
	r.group("g")
	topic := r.topicOf(1)
	require.NoError(t, topic.Pause(t.Context(), "g", Pause{}))
	slow := newStore(t, r.Client).Topic(r.partition.Topic())
	number, settings, err := slow.raise(t.Context(), 3, 1)
	require.NoError(t, err)
	require.NoError(t, topic.Resume(t.Context(), "g"))
	_, err = slow.propagate(t.Context(), settings, 1, number)
	require.NoError(t, err)
	for n := range 3 {
		exists, err := r.Client.Exists(t.Context(), slow.Partition(n).Key(script.Settings, "")).Result()
		require.NoError(t, err)
		assert.Zero(t, exists, "partition %d", n)
	}
}

// TestAPauseThatReplacesAnotherWakes the consumers, so that they learn when it ends.
func TestAPauseThatReplacesAnotherWakes(t *testing.T) {
	for _, paused := range []string{"", "g"} {
		s := newScene(t)
		g, h := s.group("g"), s.group("h")
		topic := s.topicOf(1)
		heard, other := s.listen(g, "c"), s.listen(h, "c")
		require.NoError(t, topic.Pause(t.Context(), paused, Pause{}))
		require.NoError(t, topic.Pause(t.Context(), paused, Pause{Duration: time.Minute}))
		assert.Equal(t, []Hint{{Paused: true}, {Paused: true}, {Alone: paused != ""}}, []Hint{heard(), heard(), heard()})
		if paused != "" {
			require.NoError(t, topic.Pause(t.Context(), "h", Pause{}))
			assert.Equal(t, Hint{Paused: true}, other(), "the first that it hears")
		}
	}
}

func TestResumingWakesTheConsumersOfTheGroup(t *testing.T) {
	for _, paused := range []string{"", "g"} {
		s := newScene(t)
		g, h := s.group("g"), s.group("h")
		topic := s.topicOf(1)
		require.NoError(t, topic.Pause(t.Context(), paused, Pause{}))
		heard, other := s.listen(g, "c"), s.listen(h, "c")
		require.NoError(t, topic.Resume(t.Context(), paused))
		assert.Equal(t, Hint{Alone: paused != ""}, heard())
		require.NoError(t, topic.Pause(t.Context(), "h", Pause{}))
		want := Hint{Paused: true}
		if paused == "" {
			assert.Equal(t, Hint{}, other())
		}
		assert.Equal(t, want, other(), "the next that it hears")
	}
}
