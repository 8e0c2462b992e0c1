package redisdelayprom

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

type subConfig = redisdelay.SubscriberConfig

// onOwnServer is a scene without topics of other tests.
func onOwnServer(t *testing.T) *fixture.Scene {
	t.Helper()
	s := fixture.NewOn(t, redistest.New(t))
	s.Topic = "t"
	return s
}

func TestBacklogShowsWhatIsInRedis(t *testing.T) {
	s := onOwnServer(t)
	b, registry := newBacklog(s, CollectorConfig{MaxAge: -1})
	require.NoError(t, s.Publisher().Publish("t", fixture.Keyed("later", "k", time.Hour), fixture.Delayed("later", time.Hour)))
	messages := s.Subscribe(func(c *subConfig) { c.ConsumerGroup, c.MaxInFlight = "g", 3 })
	require.NoError(t, s.Subscriber(func(c *subConfig) { c.ConsumerGroup = "absent" }).SubscribeInitialize("t"))
	s.Publish("a", "b", "c")
	held := []*message.Message{s.Next(messages), s.Next(messages), s.Next(messages)}
	require.NoError(t, fixture.Delivery(t, held[0]).Defer(delay.For(time.Hour)))
	held[0].Nack()

	var got map[string]float64
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		got = shown(t, registry, "")
		assert.Equal(c, 1.0, got["group_retrying_messages{group=g,topic=t}"])
	}, fixture.Soon, 10*time.Millisecond)
	for _, name := range []string{"redis_scrape_duration_seconds", "topic_overdue_seconds{topic=t}", "group_overdue_seconds{group=absent,topic=t}"} {
		assert.Greater(t, got[name], 0.0, name)
		assert.Less(t, got[name], 60.0, name)
		delete(got, name)
	}
	want := map[string]float64{
		"redis_up": 1, "redis_scrape_errors_total": 0, "periodic_behind_schedules": 0, "periodic_behind_seconds": 0,
		"inbox_waiting_entries": 0, "inbox_oldest_seconds": 0, "inbox_refused_entries": 0,
		"topic_scheduled_messages{topic=t}": 2, "topic_due_messages{topic=t}": 0, "topic_partitions{topic=t}": 1,
		"topic_keys{topic=t}":                    1,
		"group_overdue_seconds{group=g,topic=t}": 0,
	}
	for name, values := range map[string][2]float64{
		"queued_messages": {0, 3}, "in_line_messages": {0, 0}, "retrying_messages": {1, 0}, "in_delivery_messages": {2, 0}, "expired_leases": {0, 0},
		"dead_letters": {0, 0}, "halted_keys": {0, 0}, "consumers": {1, 0}, "paused": {0, 0}, "retired": {0, 0},
	} {
		want["group_"+name+"{group=g,topic=t}"] = values[0]
		want["group_"+name+"{group=absent,topic=t}"] = values[1]
	}
	assert.Equal(t, want, got)

	require.NoError(t, b.config.Admin.Pause(t.Context(), "t", "absent", redisdelay.Pause{}))
	got = shown(t, registry, "")
	assert.Equal(t, []float64{1, 0, 0}, []float64{
		got["group_paused{group=absent,topic=t}"], got["group_overdue_seconds{group=absent,topic=t}"], got["topic_overdue_seconds{topic=t}"],
	})
	_, err := b.config.Admin.RetireGroup(t.Context(), "t", "absent", redisdelay.RetireOptions{})
	require.NoError(t, err)
	assert.Equal(t, 1.0, shown(t, registry, "retired")["group_retired{group=absent,topic=t}"])
	held[1].Ack()
	held[2].Ack()
}

func TestBacklogShowsHaltedKeysAndWhatWaitsInLine(t *testing.T) {
	s := onOwnServer(t)
	_, registry := newBacklog(s, CollectorConfig{MaxAge: -1})
	messages := s.Subscribe(func(c *subConfig) {
		c.ConsumerGroup, c.MaxDeliveries, c.GroupLimits = "g", 1, redisdelay.GroupLimits{HaltsKeys: true}
	})
	for _, name := range []string{"a1", "a2", "a3"} {
		msg := message.NewMessage(name, nil)
		redisdelay.SetOrderingKey(msg, "a")
		require.NoError(t, s.Publisher().Publish("t", msg))
	}
	s.Next(messages).Nack()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		got := shown(t, registry, "")
		assert.Equal(c, []float64{1, 1, 2, 0, 0}, []float64{
			got["group_halted_keys{group=g,topic=t}"], got["group_dead_letters{group=g,topic=t}"],
			got["group_in_line_messages{group=g,topic=t}"], got["group_queued_messages{group=g,topic=t}"],
			got["group_overdue_seconds{group=g,topic=t}"],
		})
	}, fixture.Soon, 10*time.Millisecond)
}

func TestBacklogReadsRedisOnceInAWhile(t *testing.T) {
	s, reads := sceneWith(t, redistest.New(t), redis.Options{})
	s.Topic = "t"
	b, registry := newBacklog(s, CollectorConfig{MaxAge: time.Minute})
	now := time.Unix(1000, 0)
	b.now = func() time.Time { return now }
	s.Publish("a")
	scrape := func() float64 { return shown(t, registry, "due_messages")["topic_due_messages{topic=t}"] }
	assert.Equal(t, 1.0, scrape())
	before := reads.calls.Load()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { scrape() })
	}
	all.Wait()
	assert.Equal(t, before, reads.calls.Load(), "what was read is shown again")
	s.Publish("b")
	now = now.Add(time.Minute - 1)
	assert.Equal(t, 1.0, scrape())
	now = now.Add(1)
	assert.Equal(t, 2.0, scrape())
}

func TestBacklogSaysThatRedisCannotBeRead(t *testing.T) {
	server := redistest.New(t)
	s := fixture.NewOn(t, server)
	_, registry := newBacklog(s, CollectorConfig{MaxAge: -1, Timeout: time.Second})
	s.Publish("a")
	assert.Equal(t, 1.0, shown(t, registry, "redis_up")["redis_up"])
	require.NoError(t, server.Down())
	defer server.Up()
	got := shown(t, registry, "")
	delete(got, "redis_scrape_duration_seconds")
	assert.Equal(t, map[string]float64{"redis_up": 0, "redis_scrape_errors_total": 1}, got, "no numbers that are not so")
}

// TestWhoMayNotSeeTheInboxSeesSchedules and the other way round.
func TestWhoMayNotSeeTheInboxSeesSchedules(t *testing.T) {
	for part, seen := range map[string]string{":inbox}": "periodic_behind_schedules", ":periodic}": "inbox_waiting_entries"} {
		s := onOwnServer(t)
		_, registry := newBacklog(s, CollectorConfig{MaxAge: -1})
		s.Client.AddHook(redistest.Failing{Err: func(cmd redis.Cmder) error { // as an access list does
			if strings.Contains(fmt.Sprint(cmd.Args()...), part) {
				return errors.New("NOPERM")
			}
			return nil
		}})
		got := shown(t, registry, "")
		delete(got, "redis_scrape_duration_seconds")
		assert.Contains(t, got, seen)
		assert.Equal(t, []float64{0, 1}, []float64{got["redis_up"], got["redis_scrape_errors_total"]})
		assert.Len(t, got, map[string]int{":inbox}": 4, ":periodic}": 5}[part])
	}
}

func TestOneDamagedTopicHidesNoOther(t *testing.T) {
	s := onOwnServer(t)
	_, registry := newBacklog(s, CollectorConfig{MaxAge: -1})
	s.Publish("a")
	damaged := s.Beside("2")
	damaged.Publish("a")
	damaged.Break("keys")
	got := shown(t, registry, "")
	assert.Equal(t, 1.0, got["topic_due_messages{topic=t}"])
	assert.NotContains(t, got, "topic_due_messages{topic=t2}")
	assert.Equal(t, []float64{0, 1}, []float64{got["redis_up"], got["redis_scrape_errors_total"]})
}

func TestTopicsBeyondTheLimitAreAddedUp(t *testing.T) {
	var topics []admin.TopicStats
	dead := func(n int) admin.Counts { return admin.Counts{Dead: n} }
	for _, name := range []string{"a", "other", "b\xff", "b\xfe", "c", "d", "e"} {
		groups := []admin.GroupStats{
			{Group: "g", Counts: dead(1), HaltedKeys: 1, Overdue: time.Second}, {Group: "other", Counts: dead(10), HaltedKeys: 2}, {Group: "h", Counts: dead(100)},
		}
		topics = append(topics, admin.TopicStats{Topic: name, Counts: admin.Counts{Scheduled: 1}, Overdue: time.Second, Groups: groups})
	}
	got := fold(topics, 4)
	var lines []string
	for _, topic := range got {
		line := fmt.Sprint(topic.Topic, " ", topic.Scheduled, " ", topic.Overdue)
		for _, g := range topic.Groups {
			line += fmt.Sprint(" ", g.Group, " ", g.Dead, " ", g.HaltedKeys)
		}
		lines = append(lines, line)
	}
	assert.Equal(t, []string{
		"a 1 1s g 1 1 other 10 2 h 100 0", "other 6 1s other 666 18",
	}, lines, "the groups of b do not all fit: a topic without its groups would look as if it had none")
}

// TestATopicWithoutGroupsKeepsItsSeries when those of others are used up, and so does one whose groups still fit.
func TestATopicWithoutGroupsKeepsItsSeries(t *testing.T) {
	groups := func(names ...string) (list []admin.GroupStats) {
		for _, name := range names {
			list = append(list, admin.GroupStats{Group: name})
		}
		return list
	}
	got := fold([]admin.TopicStats{
		{Topic: "a", Groups: groups("g")}, {Topic: "b", Groups: groups("g", "h")}, {Topic: "c", Groups: groups("g")}, {Topic: "d"},
	}, 2)
	var names []string
	for _, topic := range got {
		names = append(names, fmt.Sprint(topic.Topic, " ", len(topic.Groups)))
	}
	assert.Equal(t, []string{"a 1", "c 1", "other 1"}, names)
}

func TestConfigsNameTheFieldThatCannotBeUsed(t *testing.T) {
	s := fixture.New(t)
	a, err := admin.New(admin.Config{Client: s.Client})
	require.NoError(t, err)
	for field, config := range map[string]any{
		"MaxPlaces": Config{MaxPlaces: -1},
		"Admin":     CollectorConfig{}, "Timeout": CollectorConfig{Admin: a, Timeout: 5},
	} {
		var err error
		switch config := config.(type) {
		case Config:
			_, err = New(config)
		case CollectorConfig:
			_, err = NewCollector(config)
		}
		var wrong *redisdelay.ConfigError
		require.ErrorAs(t, err, &wrong)
		assert.Equal(t, field, wrong.Field)
	}
}
