package queue

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

func retire(t *testing.T, topic *Topic, group string, how Retirement) (freed int64, err error) {
	t.Helper()
	var sum atomic.Int64
	err = topic.Retire(t.Context(), group, how, func(n int) { sum.Add(int64(n)) })
	return sum.Load(), err
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
	assert.Equal(t, forgetMessages, freed, "in bounded steps")
	stale, _, err := g.Nack(t.Context(), 0, []Nack{{Delivery: Delivery{"1/199", "1"}}}) // which comes between two steps
	require.NoError(t, err)
	assert.Empty(t, stale)
	left, err := retire(t, topic, "g", RetireIdle)
	require.NoError(t, err)
	assert.Equal(t, int64(700-forgetMessages), left)
	assert.Empty(t, with(r.State(), ":g"+" "))
	length, err := r.Client.HLen(t.Context(), r.partition.Key(script.Messages, "")).Result()
	require.NoError(t, err)
	assert.Equal(t, int64(800), length, "what h gets")
}

func TestAGroupWithLiveConsumersIsRetiredOnlyByForce(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	topic := r.topicOf(3)
	present := Presence{Alive: time.Minute, Info: `{"name":"host"}`}
	request := r.request("c", 1)
	request.Presence = present
	require.Empty(t, r.claimWith(g, request))
	_, err := retire(t, topic, "g", RetireIdle)
	require.ErrorIs(t, err, ErrGroupAlive)
	assert.ErrorContains(t, err, "c")
	require.NoError(t, g.Register(t.Context()), "nothing has happened")

	require.NoError(t, g.Leave(t.Context(), "c"))
	require.Empty(t, with(r.State(), "consumers:"))
	r.push(due("a"))
	require.Equal(t, []string{"a#1"}, r.claim(g, "c", 1))
	_, err = g.Extend(t.Context(), Heartbeat{Consumer: "c", Lease: lease, Presence: present}, []Held{held("gone", "1")})
	require.NoError(t, err)
	require.Empty(t, with(r.State(), "consumers:"), "a consumer that holds nothing is not recorded")
	_, err = g.Extend(t.Context(), Heartbeat{Consumer: "c", Lease: lease, Presence: present}, []Held{held("a", "1")})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"consumers:g c": `{"name":"host"}`}, with(r.State(), "consumers:"))
	_, err = retire(t, topic, "g", RetireIdle)
	require.ErrorIs(t, err, ErrGroupAlive)
	_, err = retire(t, topic, "g", RetireForced)
	require.NoError(t, err)
	for n := range 3 {
		members, err := r.Client.SMembers(t.Context(), topic.Partition(n).Key(script.Groups, "")).Result()
		require.NoError(t, err)
		assert.Empty(t, members, "partition %d", n)
	}
}

// TestANewPartitionDoesNotRestoreARetiredGroup although a new partition has no tombstone.
func TestANewPartitionDoesNotRestoreARetiredGroup(t *testing.T) {
	r := newScene(t)
	topic := r.topicOf(1)
	m := topic.Membership("g", GroupOptions{})
	number, err := m.Partitions(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, number)
	_, err = retire(t, topic, "g", RetireForced)
	require.NoError(t, err)
	_, err = r.topicOf(1).RaisePartitions(t.Context(), 2)
	require.NoError(t, err)
	_, err = m.Partitions(t.Context())
	require.ErrorIs(t, err, ErrGroupRetired)
	members, err := r.Client.SMembers(t.Context(), topic.Partition(1).Key(script.Groups, "")).Result()
	require.NoError(t, err)
	assert.Empty(t, members)
	require.NoError(t, topic.Restore(t.Context(), "g"))
	number, err = m.Partitions(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 2, number)
}
