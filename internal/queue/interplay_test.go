package queue

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// controlOf returns the settings of the groups of a partition.
func (r *scene) controlOf(n int) map[string]string {
	return r.Client.HGetAll(r.Ctx(), newStore(r.T, r.Client).Topic(r.partition.Topic()).Partition(n).Key(script.Settings, "")).Val()
}

// TestASlowPublisherOverwritesNoNewerSettings if it stalls between reading the settings of the first partition and copying them
// to others.
func TestASlowPublisherOverwritesNoNewerSettings(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(topic *Topic) error
		check     func(r *scene, n int)
	}{
		"a pause that begins": {
			func(topic *Topic) error { return topic.Pause(t.Context(), "g", Pause{By: "x"}) },
			func(r *scene, n int) { assert.Contains(r.T, r.controlOf(n), "paused:g") },
		},
		"a pause that ends": {
			func(topic *Topic) error { return topic.Resume(t.Context(), "h") },
			func(r *scene, n int) { assert.NotContains(r.T, r.controlOf(n), "paused:h") },
		},
		"limits that end": {
			func(topic *Topic) error { return topic.Limit(t.Context(), "g", Limits{}) },
			func(r *scene, n int) { assert.NotContains(r.T, r.controlOf(n), "limits:g") },
		},
		"a retirement": {
			func(topic *Topic) error { return topic.Retire(t.Context(), "g", RetireIdle, func(int) {}) },
			func(r *scene, n int) { assert.Equal(r.T, []string{"h"}, r.groupsIn(n)) },
		},
		"the end of a group": { // it comes back where it can end by itself
			func(topic *Topic) error { return topic.End(t.Context(), "g") },
			func(r *scene, n int) { assert.Equal(r.T, n > 0, slices.Contains(r.groupsIn(n), "g")) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newScene(t)
			topic := r.topicOf(2)
			for _, group := range []string{"g", "h"} {
				_, err := topic.Membership(group, GroupOptions{Expiry: time.Hour}).Partitions(t.Context())
				require.NoError(t, err)
				require.NoError(t, topic.Limit(t.Context(), group, Limits{MaxInFlight: 8}))
			}
			require.NoError(t, topic.Pause(t.Context(), "h", Pause{}))
			slow := newStore(t, r.Client).Topic(r.partition.Topic())
			number, settings, err := slow.raise(t.Context(), 3, 1)
			require.NoError(t, err)
			require.NoError(t, c.meanwhile(topic))
			require.NoError(t, errOf(slow.propagate(t.Context(), settings, 1, number)))
			for n := range 3 {
				c.check(r, n)
			}
		})
	}
}

// groupsIn returns the groups of a partition.
func (r *scene) groupsIn(n int) []string {
	return groupsOf(r.T, newStore(r.T, r.Client).Topic(r.partition.Topic()), n)
}

func TestAGroupWithTooLowLimitsIsNotRegistered(t *testing.T) {
	r := newScene(t)
	topic := r.topicOf(2)
	_, err := topic.Membership("g", GroupOptions{Limits: Limits{MaxInFlight: 1}}).Partitions(t.Context())
	require.ErrorIs(t, err, ErrLimitTooLow)
	for n := range 2 {
		assert.Empty(t, r.Client.SMembers(t.Context(), topic.Partition(n).Key(script.Groups, "")).Val(), n)
	}
}

func TestARecreatedGroupKeepsItsLimitsInNewPartitions(t *testing.T) {
	r := newScene(t)
	topic := r.topicOf(1)
	require.NoError(t, topic.EnsureListed(t.Context()))
	m := topic.Membership("g", GroupOptions{Limits: Limits{MaxInFlight: 8}, Expiry: time.Hour})
	_, err := m.Partitions(t.Context())
	require.NoError(t, err)
	require.NoError(t, topic.End(t.Context(), "g")) // it has expired
	_, err = r.topicOf(1).RaisePartitions(t.Context(), 2)
	require.NoError(t, err)
	_, err = m.Partitions(t.Context()) // before its next claim
	require.NoError(t, err)
	_, err = m.Group(0).Claim(t.Context(), r.request("c", 10))
	require.NoError(t, err)
	assert.Contains(t, r.controlOf(0), "limits:g")
	assert.Contains(t, r.controlOf(1), "limits:g")
}
