package queue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// controlOf is what the groups of a partition are told.
func (r *scene) controlOf(n int) map[string]string {
	return r.Client.HGetAll(r.Ctx(), newStore(r.T, r.Client).Topic(r.partition.Topic()).Partition(n).Key(script.Settings, "")).Val()
}

// whileAPublisherStarts runs meanwhile while a publisher, which has read what the first partition
// knows, has not told the others yet.
func whileAPublisherStarts(t *testing.T, meanwhile func(topic *Topic)) *scene {
	t.Helper()
	r := newScene(t)
	r.group("g")
	topic := r.topicOf(2)
	require.NoError(t, topic.Limit(t.Context(), "g", Limits{MaxInFlight: 8}))
	slow := newStore(t, r.Client).Topic(r.partition.Topic()) // a publisher that starts: no number changes
	number, settings, err := slow.raise(t.Context(), 1, 1)
	require.NoError(t, err)
	require.Equal(t, 2, number)
	meanwhile(topic)
	_, err = slow.propagate(t.Context(), settings, 1, number)
	require.NoError(t, err)
	return r
}

func TestAPublisherThatStartsEndsNoPause(t *testing.T) {
	r := whileAPublisherStarts(t, func(topic *Topic) {
		require.NoError(t, topic.Pause(t.Context(), "g", Pause{By: "x"}))
	})
	assert.Contains(t, r.controlOf(0), "paused:g")
	assert.Contains(t, r.controlOf(1), "paused:g")
}

func TestAPublisherThatStartsBringsNoLimitsBack(t *testing.T) {
	r := whileAPublisherStarts(t, func(topic *Topic) {
		require.NoError(t, topic.Limit(t.Context(), "g", Limits{}))
	})
	assert.NotContains(t, r.controlOf(0), "limits:g")
	assert.NotContains(t, r.controlOf(1), "limits:g")
}

func TestLimitsThatAreTooLowRegisterNoGroup(t *testing.T) {
	r := newScene(t)
	topic := r.topicOf(2)
	_, err := topic.Membership("g", GroupOptions{Limits: Limits{MaxInFlight: 1}}).Partitions(t.Context())
	require.ErrorIs(t, err, ErrLimitTooLow)
	for n := range 2 {
		assert.Empty(t, r.Client.SMembers(t.Context(), topic.Partition(n).Key(script.Groups, "")).Val(), n)
	}
}

func TestSettlementsFailAsAWholeIfAKeyHasAnotherType(t *testing.T) {
	for name, settle := range settlements {
		t.Run(name, func(t *testing.T) {
			r := newScene(t)
			g := r.group("g")
			r.push(due("a"))
			require.Equal(t, []string{"a#1"}, r.claim(g, "c", 10))
			require.NoError(t, r.Client.Set(t.Context(), r.partition.Key(script.AtLimit, ""), "x", 0).Err())
			before := r.Client.ZCard(t.Context(), r.partition.Key(script.UnackOf, "g")).Val()
			require.Error(t, settle(r, g, Delivery{"a", "1"}))
			assert.Equal(t, before, r.Client.ZCard(t.Context(), r.partition.Key(script.UnackOf, "g")).Val(), "changed nothing")
		})
	}
}

func TestAGroupThatComesBackWithANewPartitionHasItsLimits(t *testing.T) {
	r := newScene(t)
	topic := r.topicOf(1)
	require.NoError(t, topic.Enlist(t.Context()))
	m := topic.Membership("g", GroupOptions{Limits: Limits{MaxInFlight: 8}, Expiry: time.Hour})
	_, err := m.Partitions(t.Context())
	require.NoError(t, err)
	require.NoError(t, topic.End(t.Context(), "g")) // it has expired
	_, err = r.topicOf(1).Raise(t.Context(), 2)
	require.NoError(t, err)
	_, err = m.Partitions(t.Context()) // before its next claim
	require.NoError(t, err)
	_, err = m.Group(0).Claim(t.Context(), r.request("c", 10))
	require.NoError(t, err)
	assert.Contains(t, r.controlOf(0), "limits:g")
	assert.Contains(t, r.controlOf(1), "limits:g")
}

func TestAPublisherThatStartsBringsNoGroupBack(t *testing.T) {
	r := newScene(t)
	topic := r.topicOf(2)
	for _, name := range []string{"g", "h"} {
		_, err := topic.Membership(name, GroupOptions{Expiry: time.Hour}).Partitions(t.Context())
		require.NoError(t, err)
	}
	require.NoError(t, topic.Limit(t.Context(), "h", Limits{MaxInFlight: 8}))
	slow := newStore(t, r.Client).Topic(r.partition.Topic())
	number, settings, err := slow.raise(t.Context(), 1, 1)
	require.NoError(t, err)
	require.NoError(t, topic.End(t.Context(), "g"))
	_, err = slow.propagate(t.Context(), settings, 1, number)
	require.NoError(t, err)
	assert.Equal(t, []string{"h"}, r.Client.SMembers(t.Context(), topic.Partition(0).Key(script.Groups, "")).Val())
}
