package queue

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// limit limits a group of the scene's topic, which has one partition.
func (r *scene) limit(name string, l Limits) {
	r.T.Helper()
	require.NoError(r.T, r.topicOf(1).Limit(r.Ctx(), name, l))
}

func perSecond(messages, burst int) Limits {
	return Limits{Messages: messages, Per: time.Second, Burst: burst}
}

func TestAClockSetBackDelaysAGroupByAtMostItsBurst(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.limit("g", perSecond(10, 3))
	r.push(due("a"))
	in := r.Now().Add(time.Hour).UnixMicro()
	require.NoError(t, r.Client.HSet(t.Context(), r.partition.Key(script.Settings, ""), "rate:g", in).Err())
	claims, err := g.Claim(t.Context(), r.request("c", 10))
	require.NoError(t, err)
	assert.Empty(t, claims.Messages)
	assert.InDelta(t, 100*time.Millisecond, claims.Next, float64(10*time.Millisecond), "until the first of the burst is back")
	<-time.After(claims.Next)
	assert.Equal(t, []string{"a#1"}, r.claim(g, "c", 10))
}

func TestLimitsAreDividedAmongPartitions(t *testing.T) {
	for _, c := range []struct {
		limits     Limits
		partitions int
		want       []string
	}{
		{Limits{MaxInFlight: 5}, 1, []string{"5 0.000000 0 5"}},
		{Limits{MaxInFlight: 5}, 4, []string{"2 0.000000 0 5", "1 0.000000 0 5", "1 0.000000 0 5", "1 0.000000 0 5"}},
		{perSecond(100, 10), 1, []string{"0 10000.000000 10 10"}},
		{perSecond(100, 10), 3, []string{"0 30000.000000 4 10", "0 30000.000000 3 10", "0 30000.000000 3 10"}},
		{Limits{MaxInFlight: 2, Messages: 3, Per: time.Microsecond, Burst: 7}, 2, []string{"1 0.666667 4 2", "1 0.666667 3 2"}},
	} {
		for p, want := range c.want {
			share, err := c.limits.share(p, c.partitions)
			require.NoError(t, err)
			text, _, _ := strings.Cut(share, " {")
			assert.Equal(t, want, text, "partition %d of %d", p, c.partitions)
			whole, err := ParseLimits(share)
			require.NoError(t, err)
			assert.Equal(t, c.limits, whole)
		}
	}
	_, err := ParseLimits("1 0 0")
	require.ErrorIs(t, err, script.ErrReply)
}

// shares returns the limits of group g in each partition of a topic.
func shares(t *testing.T, r *scene, topic *Topic, partitions int) []string {
	t.Helper()
	var list []string
	for n := range partitions {
		share, err := r.Client.HGet(t.Context(), topic.Partition(n).Key(script.Settings, ""), "limits:g").Result()
		require.NoError(t, err)
		text, _, _ := strings.Cut(share, " {")
		list = append(list, text)
	}
	return list
}

func TestSharesShrinkWhenPartitionsAreAdded(t *testing.T) {
	r := newScene(t)
	r.group("g")
	topic := r.topicOf(2)
	require.NoError(t, topic.Limit(t.Context(), "g", Limits{MaxInFlight: 5}))
	assert.Equal(t, []string{"3 0.000000 0 5", "2 0.000000 0 5"}, shares(t, r, topic, 2))
	_, err := topic.RaisePartitions(t.Context(), 4)
	require.NoError(t, err)
	want := []string{"2 0.000000 0 5", "1 0.000000 0 5", "1 0.000000 0 5", "1 0.000000 0 5"}
	assert.Equal(t, want, shares(t, r, topic, 4))

	_, err = topic.RaisePartitions(t.Context(), 6)
	require.ErrorIs(t, err, ErrLimitTooLow)
	assert.ErrorContains(t, err, `6 partitions, the limits of group "g" allow 5`)
	number, err := topic.Partitions(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 4, number)
	err = topic.Limit(t.Context(), "g", Limits{MaxInFlight: 3})
	require.ErrorIs(t, err, ErrLimitTooLow)
	assert.Equal(t, want, shares(t, r, topic, 4), "nothing has changed")
	require.ErrorIs(t, topic.Limit(t.Context(), "g", perSecond(100, 3)), ErrLimitTooLow)
	require.NoError(t, topic.Limit(t.Context(), "g", perSecond(3, 4)), "the rate itself can be divided")
}

// TestLimitsForAnOutdatedPartitionCountAreRejected because a publisher may have raised the number of partitions after it was
// read.
func TestLimitsForAnOutdatedPartitionCountAreRejected(t *testing.T) {
	r := newScene(t)
	r.group("g")
	topic := r.topicOf(4)
	words, err := topic.Partition(0).limit(t.Context(), "g", Limits{MaxInFlight: 5}, 1, "")
	require.NoError(t, err)
	assert.Equal(t, "grown", words)
	assert.Empty(t, r.controlOf(0))
}

// TestLimitsAreRedividedAfterALostPartitionCount: after Redis has lost all data, a new process may be the first one, while
// other processes know the real number.
func TestLimitsAreRedividedAfterALostPartitionCount(t *testing.T) {
	for name, steps := range map[string][]int{"at once": {1}, "in steps": {1, 2, 3}} {
		t.Run(name, func(t *testing.T) { findsFewerPartitions(t, steps) })
	}
}

// findsFewerPartitions lets a new process find these numbers of partitions, of four.
func findsFewerPartitions(t *testing.T, steps []int) {
	t.Helper()
	r := newScene(t)
	topic, options := r.topicOf(4), GroupOptions{Limits: Limits{MaxInFlight: 8}}
	old := topic.Membership("g", options)
	_, err := old.Partitions(t.Context())
	require.NoError(t, err)
	want := shares(t, r, topic, 4)
	for n := range 4 {
		for _, kind := range []script.Kind{script.PartitionCount, script.Groups, script.Settings} {
			require.NoError(t, r.Client.Del(t.Context(), topic.Partition(n).Key(kind, "")).Err())
		}
	}
	first := newStore(t, r.Client).Topic(r.partition.Topic()).Membership("g", options)
	for _, n := range steps {
		require.NoError(t, errOf(newStore(t, r.Client).Topic(r.partition.Topic()).RaisePartitions(t.Context(), n)))
		number, err := first.Partitions(t.Context())
		require.NoError(t, err)
		require.Equal(t, n, number)
	}
	for n := range 4 {
		assert.Empty(t, r.claim(old.Group(n), "c", 1))
	}
	for _, m := range []*Membership{old, first} {
		number, err := m.Partitions(t.Context())
		require.NoError(t, err)
		require.Equal(t, 4, number)
	}
	assert.Equal(t, want, shares(t, r, topic, 4))
}
