package admin

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// backlog are the statistics of the topic without details.
func (s *scene) backlog() TopicStats {
	s.T.Helper()
	list, err := s.admin.Stats(s.T.Context(), StatsOptions{Topics: []string{s.Topic}})
	require.NoError(s.T, err)
	return list[0]
}

// agree checks that the statistics without details are part of those with details.
func (s *scene) agree() TopicStats {
	s.T.Helper()
	var b TopicStats
	s.unchanged(func() { b = s.backlog() })
	want := s.stats()
	require.Len(s.T, b.Groups, len(want.Groups))
	assert.WithinDuration(s.T, want.At, b.At, 5*time.Second)
	assert.InDelta(s.T, want.Overdue, b.Overdue, float64(5*time.Second))
	assert.Equal(s.T, want.Overdue > 0, b.Overdue > 0)
	want.At, want.Overdue, want.Memory, want.Bytes, want.NextDue, want.Windows = b.At, b.Overdue, 0, 0, time.Time{}, 0
	for i := range want.Groups {
		g := &want.Groups[i]
		assert.Equal(s.T, g.Overdue > 0, b.Groups[i].Overdue > 0, g.Group)
		g.At, g.Overdue, g.Consumers = b.At, b.Groups[i].Overdue, nil
		g.NextDue, g.OldestUnacked, g.OldestDead = time.Time{}, time.Time{}, time.Time{}
	}
	assert.Equal(s.T, want, b)
	return b
}

func TestDueMessagesAreNotOverdueWhileAllGroupsArePaused(t *testing.T) {
	s := newScene(t)
	s.publish(0, 1, "a", "b")
	overdue := func() bool { return s.agree().Overdue > 0 }
	require.Eventually(t, overdue, fixture.Soon, time.Millisecond, "without a group")
	s.group(0, "g")
	assert.True(t, overdue())
	require.NoError(t, s.admin.PauseGroup(t.Context(), s.Topic, "g", redisdelay.Pause{}))
	assert.False(t, overdue(), "the only group is paused")
	assert.Equal(t, 2, s.backlog().Due)

	s.group(0, "h")
	assert.True(t, overdue(), "the other group is not paused")
	require.NoError(t, s.admin.PauseGroup(t.Context(), s.Topic, "h", redisdelay.Pause{}))
	assert.False(t, overdue(), "each group has its own pause")
	for _, name := range []string{"g", "h"} {
		_, err := s.admin.RetireGroup(t.Context(), s.Topic, name, redisdelay.RetireOptions{})
		require.NoError(t, err)
	}
	assert.True(t, overdue(), "no group is left")
}

func TestStatsOfManyGroupsAndConsumers(t *testing.T) {
	s := newScene(t)
	g := s.group(0, "g")
	for i := range 24 {
		s.group(0, fmt.Sprint("g", i))
	}
	for i := range 300 { // more than one step
		s.claim(g, fmt.Sprint("host/", i), 1, fmt.Sprintf(`{"name":"host%064d"}`, i))
	}
	require.NoError(t, s.Client.ZAdd(t.Context(), s.Key("dead:g9"), z(1000, "id")).Err())
	b := s.agree()
	require.Len(t, b.Groups, 25)
	assert.Equal(t, 1, b.Groups[24].Dead, "of the last group")
	assert.Equal(t, 300, b.Groups[0].LiveConsumers)
}

func TestStatsOfManyControlFields(t *testing.T) {
	s := newScene(t)
	s.group(0, "g")
	for i := range 700 { // more than one step
		require.NoError(t, s.Client.HSet(t.Context(), s.Key("settings"), fmt.Sprint("retired:r", i), "5").Err())
	}
	assert.Len(t, s.agree().Groups, 701)
}

// TestStatsIncludeOtherTopicsWhileAMasterHangs in a Cluster whose client waits for a reply for longer than until the end of a context.
// No replica takes over. Before, a slot moves to another master.
func TestStatsIncludeOtherTopicsWhileAMasterHangs(t *testing.T) {
	cluster := redistest.NewCluster(t, "--cluster-replica-no-failover", "yes")
	client := cluster.Client(t)
	s := newSceneWith(t, client)
	masterOf := func(key string) string {
		master, err := client.MasterForKey(t.Context(), key)
		require.NoError(t, err)
		return master.Options().Addr
	}
	var topics []string
	keys, publisher := map[string]string{}, s.Publisher()
	for i := range 150 { // so that each master has more than go out at once
		topic := s.Beside(fmt.Sprint(i))
		topics = append(topics, topic.Topic)
		keys[topic.Topic] = topic.Key("scheduled")
		require.NoError(t, publisher.Publish(topic.Topic, fixture.Delayed("a", time.Hour)))
	}
	slot, err := client.ClusterKeySlot(t.Context(), keys[topics[0]]).Result()
	require.NoError(t, err)
	require.NoError(t, cluster.Migrate(t.Context(), int(slot)))
	stats, err := s.admin.Stats(t.Context(), StatsOptions{})
	require.NoError(t, err)
	require.Len(t, stats, len(topics))
	for _, one := range stats {
		assert.Equal(t, 1, one.Scheduled, one.Topic)
	}
	list := masterOf("{redisdelay:topics}")
	far := keys[topics[slices.IndexFunc(topics, func(topic string) bool { return masterOf(keys[topic]) != list })]]
	slot, err = client.ClusterKeySlot(t.Context(), far).Result()
	require.NoError(t, err)
	away, err := cluster.Master(t.Context(), int(slot))
	require.NoError(t, err)
	others := slices.DeleteFunc(slices.Clone(topics), func(topic string) bool { return masterOf(keys[topic]) == masterOf(far) })
	check := func(within time.Duration) {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		stats, err := s.admin.Stats(ctx, StatsOptions{})
		assert.Equal(t, others, topicsOf(stats))
		var failed topicErrors
		require.ErrorAs(t, err, &failed)
		assert.Len(t, failed, len(topics)-len(others))
	}
	slices.Sort(others)

	require.NoError(t, away.Signal(syscall.SIGSTOP))
	check(2 * time.Second)
	require.NoError(t, away.Signal(syscall.SIGCONT))
	require.NoError(t, away.Down())
	check(2 * time.Second)
}
