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

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func TestBacklogsFollowASlotToAnotherMaster(t *testing.T) {
	cluster := redistest.NewCluster(t)
	s := newSceneWith(t, cluster.Client(t))
	s.publish(time.Hour, 1, "a")
	slot, err := s.Client.ClusterKeySlot(t.Context(), s.Key("scheduled")).Result()
	require.NoError(t, err)
	require.Equal(t, 1, s.backlog().Scheduled)
	require.NoError(t, cluster.Migrate(t.Context(), int(slot)))
	list, err := s.admin.Backlogs(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Equal(t, 1, list[0].Scheduled)
}

// TestAMasterThatDoesNotAnswerHidesNoTopicOfOthers in a Cluster whose client has go-redis's
// default options: it waits for a reply for longer than until the end of a context.
func TestAMasterThatDoesNotAnswerHidesNoTopicOfOthers(t *testing.T) {
	cluster := redistest.NewCluster(t)
	s := newSceneWith(t, cluster.Client(t))
	masterOf := func(key string) *redistest.Server {
		slot, err := s.Client.ClusterKeySlot(t.Context(), key).Result()
		require.NoError(t, err)
		master, err := cluster.Master(t.Context(), int(slot))
		require.NoError(t, err)
		return master
	}
	var topics []string
	masters := map[string]*redistest.Server{}
	for i := range 150 { // so that each master has more than go out at once
		topic := s.Beside(fmt.Sprint(i))
		topics = append(topics, topic.Topic)
		masters[topic.Topic] = masterOf(topic.Key("scheduled"))
		require.NoError(t, s.Publisher().Publish(topic.Topic, fixture.Delayed("a", time.Hour)))
	}
	list := masterOf("{redisdelay:topics}")
	away := masters[topics[slices.IndexFunc(topics, func(topic string) bool { return masters[topic] != list })]]
	others := slices.DeleteFunc(slices.Clone(topics), func(topic string) bool { return masters[topic] == away })
	check := func(within time.Duration) {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		var names []string
		backlogs, err := s.admin.Backlogs(ctx)
		for _, b := range backlogs {
			names = append(names, b.Topic)
		}
		assert.Equal(t, others, names)
		require.ErrorContains(t, err, fmt.Sprintf("%d of %d topics could not be read", len(topics)-len(others), len(topics)))
	}
	slices.Sort(others)

	require.NoError(t, away.Signal(syscall.SIGSTOP))
	check(time.Second) // a replica does not take over earlier
	require.NoError(t, away.Signal(syscall.SIGCONT))
	require.NoError(t, away.Down())
	check(time.Second)
}
