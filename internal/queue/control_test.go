package queue

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// topicOf is a topic with some partitions, for this scene only.
func (r *scene) topicOf(partitions int) *Topic {
	r.t.Helper()
	topic := newStore(r.t, r.client).Topic(r.partition.topic)
	require.NoError(r.t, topic.Enlist(r.ctx()))
	_, err := topic.Raise(r.ctx(), partitions)
	require.NoError(r.t, err)
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
	assert.Equal(t, map[string]string{"control paused:g": `{"by":"anna","reason":"migration"}`}, with(r.state(), "control"))

	missing, err := g.Ack(t.Context(), done("a"))
	require.NoError(t, err)
	assert.Empty(t, missing, "deliveries under way go on")
	r.push(due("c"))
	assert.Zero(t, other(), "publishing goes on, and the pause was not for this group")

	require.NoError(t, topic.Pause(t.Context(), "g", Pause{Reason: "still"}), "twice is no error")
	require.NoError(t, topic.Resume(t.Context(), "g"))
	require.NoError(t, topic.Resume(t.Context(), "g"), "twice is no error")
	for hint := heard(); hint.Paused || hint.Looked; hint = heard() { // after which it is woken
	}
	assert.Equal(t, []string{"b#1", "c#1"}, r.claim(g, "c", 10))
	assert.Empty(t, with(r.state(), "control"))
}

func TestAPauseOfAllGroupsEndsByItself(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	topic := r.topicOf(1)
	r.push(due("a"))
	require.NoError(t, topic.Pause(t.Context(), "", Pause{Lasts: 300 * time.Millisecond}))
	claims, err := g.Claim(t.Context(), r.request("c", 10))
	require.NoError(t, err)
	assert.Empty(t, claims.Messages)
	assert.Positive(t, claims.Next)
	assert.LessOrEqual(t, claims.Next, 301*time.Millisecond)
	<-time.After(claims.Next)
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
	r.expire(g, "a")
	spent := r.request("d", 1)
	spent.MaxDeliveries = 1
	before := r.state()
	assert.Empty(t, r.claimWith(g, spent))
	assert.Equal(t, before, r.state())
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
		fields, err := r.client.HKeys(t.Context(), topic.Partition(n).names.key(control)).Result()
		require.NoError(t, err)
		assert.ElementsMatch(t, []string{"paused", "paused:g"}, fields, "partition %d", n)
	}
	require.NoError(t, topic.Resume(t.Context(), "g"))
	require.NoError(t, topic.Resume(t.Context(), ""))
	for n := range 3 {
		exists, err := r.client.Exists(t.Context(), topic.Partition(n).names.key(control)).Result()
		require.NoError(t, err)
		assert.Zero(t, exists, "partition %d", n)
	}
}

func retire(t *testing.T, topic *Topic, group string, how Retirement) (freed int64, err error) {
	t.Helper()
	var sum atomic.Int64
	err = topic.Retire(t.Context(), group, how, func(n int) { sum.Add(int64(n)) })
	return sum.Load(), err
}

func TestRetiringFreesWhatOnlyTheGroupNeeds(t *testing.T) {
	r := newScene(t)
	g, h := r.group("g"), r.group("h")
	topic := r.topicOf(1)
	r.push(due(keyed(1, "acked by h")), due(keyed(2, "needed by h")), due("dead"), due("leased"), due("again"), after("later", 60))
	require.Len(t, r.claim(h, "c", 10), 5)
	_, err := h.Ack(t.Context(), done(keyed(1, "acked by h"), "dead", "leased", "again"))
	require.NoError(t, err)
	require.Len(t, r.claim(g, "c", 10), 5)
	_, err = g.Bury(t.Context(), []Burial{{Delivery{"dead", "1"}, "bad"}})
	require.NoError(t, err)
	_, _, err = g.Nack(t.Context(), 0, []Nack{{Delivery: Delivery{"again", "1"}, Metadata: []byte("changed")}})
	require.NoError(t, err)

	freed, err := retire(t, topic, "g", RetireIdle)
	require.NoError(t, err)
	assert.Equal(t, int64(5), freed)
	id := keyed(2, "needed by h")
	state := r.state()
	assert.Equal(t, map[string]string{"control retired:g": ""}, with(state, "control"))
	delete(state, "control retired:g")
	assert.Equal(t, map[string]string{
		"groups h": "member", "unack:h " + id: "now+30s", "messages " + id: "body " + id, "refs " + id: `["h"]`,
		"keys needed by h": id, "scheduled later": "now+60s", "messages later": "body later",
	}, state)
	freed, err = retire(t, topic, "g", RetireIdle)
	require.NoError(t, err)
	assert.Zero(t, freed, "twice is no error")

	require.ErrorIs(t, g.Register(t.Context()), ErrGroupRetired)
	_, err = g.Claim(t.Context(), r.request("c", 1))
	require.ErrorIs(t, err, ErrGroupRetired)
	missing, err := g.Ack(t.Context(), done("leased"))
	require.NoError(t, err)
	assert.Equal(t, []string{"leased"}, missing)
	require.NoError(t, topic.Restore(t.Context(), "g"))
	require.NoError(t, topic.Restore(t.Context(), "g"), "twice is no error")
	require.NoError(t, g.Register(t.Context()))
	assert.Empty(t, r.claim(g, "c", 10), "it starts anew")
}

func TestRetiringContinuesWhereItStopped(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	topic := r.topicOf(1)
	for n := range 3 {
		var list []Message
		for i := range 500 {
			list = append(list, due(fmt.Sprintf("%d/%03d", n, i)))
		}
		r.push(list...)
	}
	require.Len(t, r.claim(g, "c", 700), 700)
	r.group("h")
	require.NoError(t, g.retire(t.Context(), RetireIdle))
	freed, err := g.forget(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 500, freed, "in bounded steps")
	stale, _, err := g.Nack(t.Context(), 0, []Nack{{Delivery: Delivery{"1/199", "1"}}}) // which comes between two steps
	require.NoError(t, err)
	assert.Empty(t, stale)
	left, err := retire(t, topic, "g", RetireIdle)
	require.NoError(t, err)
	assert.Equal(t, int64(200), left)
	assert.Empty(t, with(r.state(), ":g"+" "))
	length, err := r.client.HLen(t.Context(), r.partition.names.key(messages)).Result()
	require.NoError(t, err)
	assert.Equal(t, int64(800), length, "what h gets")
}

func TestOnlyARetiredGroupIsForgotten(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"))
	require.Equal(t, []string{"a#1"}, r.claim(g, "c", 1))
	before := r.state()
	_, err := g.forget(t.Context())
	require.ErrorIs(t, err, errNotRetired)
	assert.Equal(t, before, r.state())
	_, err = retire(t, r.topicOf(1), "unknown", RetireForced)
	require.ErrorIs(t, err, ErrGroupNotFound)
	assert.Equal(t, before, r.state())
}

func TestAGroupWithLiveConsumersIsRetiredOnlyByForce(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	topic := r.topicOf(3)
	present := Presence{Alive: time.Minute, About: `{"name":"host"}`}
	request := r.request("c", 1)
	request.Presence = present
	require.Empty(t, r.claimWith(g, request))
	_, err := retire(t, topic, "g", RetireIdle)
	require.ErrorIs(t, err, ErrGroupAlive)
	assert.ErrorContains(t, err, "c")
	require.NoError(t, g.Register(t.Context()), "nothing has happened")

	require.NoError(t, g.Leave(t.Context(), "c"))
	require.Empty(t, with(r.state(), "consumers:"))
	r.push(due("a"))
	require.Equal(t, []string{"a#1"}, r.claim(g, "c", 1))
	_, err = g.Extend(t.Context(), Heartbeat{Consumer: "c", Lease: lease, Presence: present}, []Held{held("gone", "1")})
	require.NoError(t, err)
	require.Empty(t, with(r.state(), "consumers:"), "a consumer that holds nothing is not recorded")
	_, err = g.Extend(t.Context(), Heartbeat{Consumer: "c", Lease: lease, Presence: present}, []Held{held("a", "1")})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"consumers:g c": `{"name":"host"}`}, with(r.state(), "consumers:"))
	_, err = retire(t, topic, "g", RetireIdle)
	require.ErrorIs(t, err, ErrGroupAlive)
	_, err = retire(t, topic, "g", RetireForced)
	require.NoError(t, err)
	for n := range 3 {
		members, err := r.client.SMembers(t.Context(), topic.Partition(n).names.key(groups)).Result()
		require.NoError(t, err)
		assert.Empty(t, members, "partition %d", n)
	}
}

func TestTheNextConsumerDropsDeadOnes(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	for i := range 20 {
		request := r.request(fmt.Sprint("dead", i), 1)
		request.Presence = Presence{Alive: time.Millisecond, About: "{}"}
		require.Empty(t, r.claimWith(g, request))
	}
	<-time.After(5 * time.Millisecond)
	for i := range 3 {
		request := r.request(fmt.Sprint("alive", i), 1)
		request.Presence = Presence{Alive: time.Minute, About: "{}"}
		require.Empty(t, r.claimWith(g, request))
	}
	names, err := r.client.HKeys(t.Context(), r.partition.names.keyOf(consumersOf, "g")).Result()
	require.NoError(t, err)
	slices.Sort(names)
	assert.Equal(t, []string{"alive0", "alive1", "alive2"}, names)
}

func TestATopicThatIsNotOnTheListIsNotFound(t *testing.T) {
	r := newScene(t)
	topic := newStore(t, r.client).Topic(r.partition.topic)
	require.ErrorIs(t, topic.Pause(t.Context(), "", Pause{}), ErrTopicNotFound)
	require.ErrorIs(t, topic.Resume(t.Context(), ""), ErrTopicNotFound)
	_, err := retire(t, topic, "g", RetireIdle)
	require.ErrorIs(t, err, ErrTopicNotFound)
	_, err = topic.Backlog(t.Context(), "")
	require.ErrorIs(t, err, ErrTopicNotFound)
	assert.Empty(t, r.state())
}

func TestBacklogCountsTheMessagesThatAwaitGroups(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.group("h")
	topic := r.topicOf(2)
	r.push(due("a"), due("b"), due("c"), after("d", 60))
	b, err := topic.Backlog(t.Context(), "")
	require.NoError(t, err)
	assert.Equal(t, Backlog{Due: 3}, b)
	require.Len(t, r.claim(g, "c", 2), 2)
	b, err = topic.Backlog(t.Context(), "g")
	require.NoError(t, err)
	assert.Equal(t, Backlog{Due: 1, InDelivery: 2}, b)
	b, err = topic.Backlog(t.Context(), "")
	require.NoError(t, err)
	assert.Equal(t, Backlog{Due: 1, Queued: 2, InDelivery: 2}, b)
}

// TestAGroupRetiredWhilePartitionsAreAddedComesBackInNone has a slow publisher give new
// partitions what the first one had before.
func TestAGroupRetiredWhilePartitionsAreAddedComesBackInNone(t *testing.T) {
	r := newScene(t)
	r.group("g")
	slow := newStore(t, r.client).Topic(r.partition.topic)
	number, taught, err := slow.raise(t.Context(), 3, 1)
	require.NoError(t, err)
	require.Equal(t, []string{"g"}, taught.groups)
	_, err = retire(t, r.topicOf(1), "g", RetireIdle)
	require.NoError(t, err)
	_, err = slow.teach(t.Context(), taught, 1, number)
	require.NoError(t, err)
	for n := range 3 {
		members, err := r.client.SMembers(t.Context(), slow.Partition(n).names.key(groups)).Result()
		require.NoError(t, err)
		assert.Empty(t, members, "partition %d", n)
	}
}

// TestAPauseThatEndsWhilePartitionsAreAddedEndsInAll is the same for a pause.
func TestAPauseThatEndsWhilePartitionsAreAddedEndsInAll(t *testing.T) {
	r := newScene(t)
	r.group("g")
	topic := r.topicOf(1)
	require.NoError(t, topic.Pause(t.Context(), "g", Pause{}))
	slow := newStore(t, r.client).Topic(r.partition.topic)
	number, taught, err := slow.raise(t.Context(), 3, 1)
	require.NoError(t, err)
	require.NoError(t, topic.Resume(t.Context(), "g"))
	_, err = slow.teach(t.Context(), taught, 1, number)
	require.NoError(t, err)
	for n := range 3 {
		exists, err := r.client.Exists(t.Context(), slow.Partition(n).names.key(control)).Result()
		require.NoError(t, err)
		assert.Zero(t, exists, "partition %d", n)
	}
}
