package admin

import (
	"context"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func (s *scene) stats() TopicStats {
	s.T.Helper()
	stats, err := s.admin.statsOf(s.T.Context(), s.Topic, nil)
	require.NoError(s.T, err)
	return stats
}

func TestTopicsAreListedByName(t *testing.T) {
	s := newScene(t)
	s.publish(time.Hour, 1, "a")
	b := s.beside(" b")
	b.publish(time.Hour, 1, "a")
	require.NoError(t, s.admin.PauseGroup(t.Context(), b.Topic, redisdelay.AllGroups, redisdelay.Pause{}))
	topics, err := s.admin.Topics(t.Context())
	require.NoError(t, err)
	assert.Subset(t, topics, []string{s.Topic, b.Topic})
	assert.IsIncreasing(t, topics)
}

func TestStatsCountATopicAndItsGroups(t *testing.T) {
	s := newScene(t)
	g := s.group(0, "g")
	s.publish(0, 1, "retried", "dead", "held", "")
	claimed := s.claim(g, "host-3/01", 3, `{"name":"host-3","pid":7}`)
	s.group(0, "h")
	s.publish(time.Hour, 1, "later", "")
	s.publish(0, 1, "due")
	s.nack(g, time.Minute, claimed[0])
	s.bury(g, "bad", claimed[1])
	var stats TopicStats
	s.unchanged(func() { stats = s.stats() })
	s.agree()
	now := s.Now()

	assert.Equal(t, 1, stats.Partitions)
	assert.Equal(t, []int{4, 2, 7, 5, 0, 1}, []int{
		stats.Scheduled, stats.Due, stats.Messages, stats.Keys, stats.Windows, stats.Dead,
	}, "scheduled, due, messages, keys, windows, dead")
	assert.WithinDuration(t, now, stats.OldestDue, 5*time.Second)
	assert.WithinDuration(t, now.Add(time.Hour), stats.NextDue, 5*time.Second)
	assert.WithinDuration(t, now, stats.At, 5*time.Second)
	assert.InDelta(t, 7*60, stats.Bytes, 7*60)
	overdue := func(s TopicStats) []time.Duration {
		return []time.Duration{s.Overdue, s.Groups[0].Overdue, s.Groups[1].Overdue}
	}
	due := stats.At.Sub(stats.OldestDue)
	assert.Equal(t, []time.Duration{due, due, due}, overdue(stats), "what is due waits for all groups")

	groups, err := s.admin.Groups(t.Context(), s.Topic)
	require.NoError(t, err)
	require.Len(t, groups, 2)
	assert.Equal(t, "h", groups[1].Group)
	one := groups[0]
	assert.Equal(t, []int{0, 1, 1, 0, 1}, []int{one.Ready, one.Postponed, one.InDelivery, one.LeaseExpired, one.Dead})
	assert.Zero(t, one.OldestReady)
	assert.WithinDuration(t, now.Add(time.Minute), one.NextDue, 5*time.Second)
	assert.WithinDuration(t, now, one.OldestUnacked, 5*time.Second)
	assert.WithinDuration(t, now, one.OldestDead, 5*time.Second)
	assert.Equal(t, GroupActive, one.State)
	require.Len(t, one.Consumers, 1)
	c := one.Consumers[0]
	assert.Equal(t, []any{s.Topic, "g", "host-3/01", "host-3", 7}, []any{c.Topic, c.Group, c.ID, c.Name, c.PID})
	assert.WithinDuration(t, now, c.Since, 5*time.Second)
	assert.WithinDuration(t, now, c.LastSeen, 5*time.Second)
	assert.WithinDuration(t, now.Add(time.Minute), c.AliveUntil, 5*time.Second)

	require.NoError(t, s.Client.ZAdd(t.Context(), s.Key("unack:g"), z(1000, claimed[2].ID)).Err())
	require.NoError(t, s.Client.ZAdd(t.Context(), s.Key("queue:g"), z(1000, claimed[0].ID)).Err())
	s.agree()
	stats = s.stats()
	assert.Equal(t, []int{1, 0, 1, 1}, []int{stats.Groups[0].Ready, stats.Groups[0].Postponed, stats.Groups[0].InDelivery, stats.Groups[0].LeaseExpired})
	assert.Equal(t, time.UnixMilli(1000), stats.Groups[0].OldestReady)
	old := stats.At.Sub(time.UnixMilli(1000))
	assert.Equal(t, []time.Duration{old, old, stats.At.Sub(stats.OldestDue)}, overdue(stats))
	require.NoError(t, s.admin.PauseGroup(t.Context(), s.Topic, "g", redisdelay.Pause{}))
	stats = s.agree()
	assert.Less(t, stats.Overdue, time.Minute, "a paused group does not count")
	assert.Zero(t, stats.Groups[0].Overdue)
	_, err = s.admin.RetireGroup(t.Context(), s.Topic, "h", redisdelay.RetireOptions{})
	require.NoError(t, err)
	stats = s.agree()
	assert.Equal(t, []any{GroupRetired, (*redisdelay.Pause)(nil)}, []any{stats.Groups[1].State, stats.Groups[1].Pause})
	require.NoError(t, s.admin.PauseGroup(t.Context(), s.Topic, redisdelay.AllGroups, redisdelay.Pause{}))
	assert.Zero(t, s.agree().Overdue)
}

func TestStatsAddUpThePartitionsOfACluster(t *testing.T) {
	s := newSceneWith(t, redistest.SharedCluster(t).Client(t))
	s.crowd()
	s.publish(0, 4, "overdue")
	stats := s.stats()
	assert.Equal(t, 4, stats.Partitions)
	assert.Equal(t, []int{61, 1, 121, 121}, []int{stats.Scheduled, stats.Due, stats.Messages, stats.Keys})
	assert.Equal(t, time.UnixMilli(4e12), stats.NextDue)
	require.Len(t, stats.Groups, 4)
	for i, want := range [][]int{{0, 60, 60, 0}, {0, 0, 0, 60}, {60, 0, 0, 0}, {60, 0, 0, 0}} {
		g := stats.Groups[i]
		assert.Equal(t, want, []int{g.Ready, g.InDelivery, g.LeaseExpired, g.Dead}, g.Group)
	}
	assert.InDelta(t, stats.Messages*70, stats.Bytes, float64(stats.Messages*40))
	s.agree()
}

func TestGroupsShowTheirPausesLimitsAndExpiry(t *testing.T) {
	s := newScene(t)
	names := []string{"expiring", "free", "limited", "paused", "retired", "retiring"}
	for _, name := range names {
		s.group(0, name)
	}
	limits := redisdelay.GroupLimits{MaxInFlight: 3, Rate: redisdelay.Rate{Messages: 100, Per: time.Second, Burst: 10}}
	require.NoError(t, s.admin.LimitGroup(t.Context(), s.Topic, "limited", limits))
	require.NoError(t, s.admin.PauseGroup(t.Context(), s.Topic, "paused", redisdelay.Pause{For: time.Hour, By: "anna", Reason: "migration"}))
	for _, name := range []string{"retired", "retiring"} {
		_, err := s.admin.RetireGroup(t.Context(), s.Topic, name, redisdelay.RetireOptions{})
		require.NoError(t, err)
	}
	require.NoError(t, s.Client.ZAdd(t.Context(), s.Key("dead:retiring"), z(1000, "left")).Err())
	expiring := s.Subscriber(func(c *redisdelay.SubscriberConfig) { c.ConsumerGroup, c.GroupExpiry = "expiring", time.Hour })
	require.NoError(t, expiring.SubscribeInitialize(s.Topic))

	groups := map[string]GroupStats{}
	s.unchanged(func() {
		list, err := s.admin.Groups(t.Context(), s.Topic)
		require.NoError(t, err)
		for i, g := range list {
			assert.Equal(t, names[i], g.Group)
			groups[g.Group] = g
		}
	})
	assert.Equal(t, &limits, groups["limited"].Limits)
	assert.Nil(t, groups["free"].Limits)
	assert.Nil(t, groups["free"].Pause)
	assert.Zero(t, groups["free"].ExpiresAt)
	assert.Empty(t, s.list(Query{Set: Dead, Group: "retired"}).Entries, "a retired group is found")
	pause := groups["paused"].Pause
	require.NotNil(t, pause)
	assert.WithinDuration(t, s.Now().Add(time.Hour), pause.Until(), 5*time.Second)
	assert.WithinDuration(t, s.Now(), pause.Since, 5*time.Second)
	assert.Equal(t, []any{false, "anna", "migration"}, []any{pause.All, pause.By, pause.Reason})
	assert.Equal(t, []GroupState{GroupActive, GroupRetired, GroupRetiring},
		[]GroupState{groups["free"].State, groups["retired"].State, groups["retiring"].State})
	assert.WithinDuration(t, s.Now().Add(time.Hour), groups["expiring"].ExpiresAt, 5*time.Second)

	require.NoError(t, s.admin.PauseGroup(t.Context(), s.Topic, redisdelay.AllGroups, redisdelay.Pause{For: time.Minute}))
	stats := s.stats()
	require.NotNil(t, stats.Pause)
	assert.True(t, stats.Pause.All)
	assert.True(t, stats.Groups[1].Pause.All, "of the free group")
	assert.False(t, stats.Groups[3].Pause.All, "its own lasts longer")
	require.NoError(t, s.admin.PauseGroup(t.Context(), s.Topic, redisdelay.AllGroups, redisdelay.Pause{}))
	assert.True(t, s.stats().Groups[3].Pause.All, "that of all has no end")
	require.NoError(t, s.admin.ResumeGroup(t.Context(), s.Topic, redisdelay.AllGroups))
	assert.Nil(t, s.stats().Pause)
	require.NoError(t, s.Client.HSet(t.Context(), s.Key("settings"), "paused", "1000 500 {}").Err())
	assert.Nil(t, s.stats().Pause, "it is over")
}

// TestConsumersReportTheMessagesTheyHold and how often they have extended the leases.
func TestConsumersReportTheMessagesTheyHold(t *testing.T) {
	s := newScene(t)
	messages := s.Subscribe(func(c *redisdelay.SubscriberConfig) {
		c.ConsumerGroup, c.ConsumerName, c.LeaseDuration, c.MaxDeliveries = "g", "host-3", time.Second, 5
		c.MaxInFlight, c.PollInterval = 2, time.Second
	})
	s.publish(0, 1, "slow")
	slow := s.Next(messages)
	id := fixture.Delivery(t, slow).ID
	var c Consumer
	holds := func(least, most int) {
		t.Helper()
		require.Eventually(t, func() bool {
			select {
			case slow = <-messages: // this process stood still, and has lost the lease
			default:
			}
			g := s.stats().Groups
			if len(g) != 1 || len(g[0].Consumers) != 1 {
				return false
			}
			c = g[0].Consumers[0]
			return c.Holds[id] >= least && c.Holds[id] <= most
		}, fixture.Soon, 5*time.Millisecond)
	}
	holds(3, 1000)
	assert.Equal(t, "host-3", c.Name)
	m, err := s.admin.Message(t.Context(), s.Topic, Ref{ID: id})
	require.NoError(t, err)
	assert.Equal(t, "host-3", m.Groups[0].Consumer)
	assert.GreaterOrEqual(t, m.Groups[0].Extensions, 3)
	slow.Ack()
	holds(0, 0)
	consumers, err := inspect.Consumers(t.Context(), s.admin.store.Topic(s.Topic).Partition(0).Group("g"))
	require.NoError(t, err)
	assert.Equal(t, queue.ConsumerInfo{Name: "host-3", PID: c.PID, MaxDeliveries: 5}, consumers[0].Info)
}

// TestStatsIncludeAllReadableTopics with and without details, and an error for each of the others.
func TestStatsIncludeAllReadableTopics(t *testing.T) {
	server := redistest.New(t)
	s := newSceneWith(t, server.Client(t))
	for _, name := range []string{"", "/damaged", "/garbled", "/newer", "/z"} {
		s.beside(name).publish(time.Hour, 1, "k")
	}
	require.NoError(t, s.Client.HSet(t.Context(), "{redisdelay:topics}", s.Topic+"/newer", "4").Err())
	require.NoError(t, s.Client.Set(t.Context(), s.beside("/garbled").Key("partitions"), "0", 0).Err())
	s.beside("/damaged").Break("keys")
	for _, details := range []bool{false, true} {
		require.NoError(t, s.Client.ScriptFlush(t.Context()).Err()) // the scripts are loaded again
		stats, err := s.admin.Stats(t.Context(), StatsOptions{Details: details})
		assert.Equal(t, []string{s.Topic, s.Topic + "/z"}, topicsOf(stats))
		var wrong *redisdelay.WrongTypeError
		require.ErrorAs(t, err, &wrong)
		require.ErrorIs(t, err, redisdelay.ErrProtocolMismatch)
		assert.Regexp(t, fmt.Sprintf(`^redisdelay: statistics of "%[1]s/damaged": .*; "%[1]s/garbled": .*; "%[1]s/newer": .*$`, s.Topic), err.Error())

		stats, err = s.admin.Stats(t.Context(), StatsOptions{Topics: []string{s.Topic + "/z", "", "nowhere", s.Topic}, Details: details})
		assert.Equal(t, []string{s.Topic + "/z", s.Topic}, topicsOf(stats))
		require.ErrorIs(t, err, redisdelay.ErrEmptyTopic)
		require.ErrorIs(t, err, ErrTopicNotFound)

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = s.admin.Stats(ctx, StatsOptions{Details: details})
		require.ErrorIs(t, err, context.Canceled)
	}
	_, err := s.admin.Stats(t.Context(), StatsOptions{Topics: []string{"a", "b", "c", "d", "e", "f", "g"}})
	require.ErrorContains(t, err, `"e": `+ErrTopicNotFound.Error()+"; and of 2 other topics")
	require.NoError(t, server.Down())
	defer server.Up()
	_, err = s.admin.Stats(t.Context(), StatsOptions{})
	require.Error(t, err)
}

func topicsOf(stats []TopicStats) (topics []string) {
	for _, s := range stats {
		topics = append(topics, s.Topic)
	}
	return topics
}

// TestStatsEstimateTheMemoryOfATopic with its ids, keys and windows in all sets.
func TestStatsEstimateTheMemoryOfATopic(t *testing.T) {
	client := redistest.New(t).Client(t)
	s := newSceneWith(t, client)
	used := func() int64 {
		var n int64
		info, err := client.Info(t.Context(), "memory").Result()
		require.NoError(t, err)
		_, err = fmt.Sscanf(regexp.MustCompile(`used_memory_dataset:\d+`).FindString(info), "used_memory_dataset:%d", &n)
		require.NoError(t, err)
		return n
	}
	s.publish(time.Hour, 1, "first")
	before := used()
	for i := range 20 {
		var keys []string
		for n := range 1000 {
			keys = append(keys, fmt.Sprintf("key of %d", i*1000+n))
		}
		s.publish(time.Hour, 1, keys...)
	}
	took := used() - before
	stats := s.stats()
	assert.Less(t, stats.Bytes, took/2, "the bodies alone")
	assert.InEpsilon(t, took, stats.Memory, 0.25)

	redistest.Command(t, client, "ACL", "SETUSER", "curt", "on", ">secret", "~*", "&*", "+@all", "-memory|usage")
	o := *client.Options()
	o.Username, o.Password = "curt", "secret"
	curt := redis.NewClient(&o)
	defer curt.Close() //nolint:errcheck // it has no more to say
	a, err := New(Config{Client: curt})
	require.NoError(t, err)
	stats, err = a.statsOf(t.Context(), s.Topic, nil)
	require.NoError(t, err)
	assert.Zero(t, stats.Memory, "who may not ask does not know")
	assert.Positive(t, stats.Bytes)
}
