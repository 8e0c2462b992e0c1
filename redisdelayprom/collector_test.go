package redisdelayprom

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// hook counts calls of scripts, and lets those that name a key with a part hang until they are given up.
type hook struct {
	redistest.Hook
	calls atomic.Int64
	hangs atomic.Value // string
}

func (h *hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") { // a new connection's HELLO and CLIENT come by, too
			h.calls.Add(1)
		}
		if part, _ := h.hangs.Load().(string); part != "" && strings.Contains(fmt.Sprint(cmd.Args()...), part) {
			<-ctx.Done()
			cmd.SetErr(ctx.Err())
			return ctx.Err()
		}
		return next(ctx, cmd)
	}
}

// sceneOn is a scene on a server, with a client of its own.
func sceneOn(t *testing.T, server *redistest.Server, options redis.Options) (*fixture.Scene, *hook) {
	t.Helper()
	options.Addr = server.Addr
	client := redis.NewClient(&options)
	t.Cleanup(func() { _ = client.Close() })
	h := &hook{}
	client.AddHook(h)
	s := fixture.NewWith(t, client)
	s.Topic = "t"
	return s, h
}

// someReading has a value of its own in each statistic.
func someReading() *reading {
	r := &reading{
		end: time.Now(), failures: 1, behind: 2, behindFor: 3 * time.Second,
		inbox: admin.Inbox{Waiting: 4, Oldest: 5 * time.Second, Rejected: 6}, dueWithin: []time.Duration{time.Minute, 24 * time.Hour},
	}
	r.fold([]admin.TopicStats{{
		Topic: "t", Partitions: 7, Keys: 8, Overdue: 9 * time.Second, DueWithin: []int{10, 11}, Counts: admin.Counts{Scheduled: 12, Due: 13},
		Groups: []admin.GroupStats{{
			Group: "g", State: admin.GroupRetired, Pause: &redisdelay.Pause{}, HaltedKeys: 14, Overdue: 15 * time.Second, LiveConsumers: 16,
			Counts: admin.Counts{Ready: 17, Postponed: 18, InLine: 19, InDelivery: 20, LeaseExpired: 21, Dead: 22},
		}},
	}}, 10)
	return r
}

func TestCollectorShowsEachStatistic(t *testing.T) {
	registry := registryOf(t, &Collector{config: CollectorConfig{MaxAge: time.Hour}, last: someReading()})
	assert.Equal(t, map[string]float64{
		"redis_up": 1, "redis_scrape_errors_total": 1, "periodic_behind_schedules": 2, "periodic_behind_seconds": 3,
		"inbox_waiting_entries": 4, "inbox_oldest_seconds": 5, "inbox_rejected_entries": 6,
		"topic_partitions{topic=t}": 7, "topic_keys{topic=t}": 8, "topic_overdue_seconds{topic=t}": 9,
		"topic_due_within_messages{topic=t,within=1m}": 10, "topic_due_within_messages{topic=t,within=1d}": 11,
		"topic_scheduled_messages{topic=t}": 12, "topic_due_messages{topic=t}": 13,
		"group_retired{group=g,topic=t}": 1, "group_paused{group=g,topic=t}": 1, "group_halted_keys{group=g,topic=t}": 14,
		"group_overdue_seconds{group=g,topic=t}": 15, "group_consumers{group=g,topic=t}": 16, "group_ready_messages{group=g,topic=t}": 17,
		"group_postponed_messages{group=g,topic=t}": 18, "group_in_line_messages{group=g,topic=t}": 19,
		"group_in_delivery_messages{group=g,topic=t}": 20, "group_expired_leases{group=g,topic=t}": 21, "group_dead_messages{group=g,topic=t}": 22,
	}, shown(t, registry, ""))
}

func TestCollectorReadsRedis(t *testing.T) {
	s, _ := sceneOn(t, redistest.New(t), redis.Options{})
	_, registry := newCollector(s, CollectorConfig{MaxAge: -1, DueWithin: []time.Duration{time.Hour, time.Minute, time.Hour}})
	publisher := s.Publisher(fixture.Partitions(3))
	for _, by := range []time.Duration{0, 30 * time.Second, 30 * time.Minute, 3 * time.Hour} {
		require.NoError(t, publisher.Publish("t", fixture.Delayed(by.String(), by)))
	}
	want := map[string]float64{
		"redis_up": 1, "topic_scheduled_messages{topic=t}": 4, "topic_due_messages{topic=t}": 1, "topic_partitions{topic=t}": 3,
		"topic_due_within_messages{topic=t,within=1m}": 2, "topic_due_within_messages{topic=t,within=1h}": 3,
	}
	got := nonZero(shown(t, registry, ""))
	delete(got, "topic_overdue_seconds{topic=t}")
	assert.Equal(t, want, got)
	s.Publish("another")
	assert.Equal(t, 2.0, shown(t, registry, "due_messages")["topic_due_messages{topic=t}"], "each scrape reads")
}

// TestScrapesShareAReading that has ended within MaxAge, also one that failed.
func TestScrapesShareAReading(t *testing.T) {
	server := redistest.New(t)
	s, h := sceneOn(t, server, redis.Options{MaxRetries: -1})
	c, registry := newCollector(s, CollectorConfig{MaxAge: time.Hour})
	s.Publish("a")
	scrape := func() (calls int64) {
		before := h.calls.Load()
		shown(t, registry, "")
		return h.calls.Load() - before
	}
	scrape() // loads the scripts
	c.last.end = c.last.end.Add(-time.Hour)
	once, before := scrape(), h.calls.Load()
	assert.NotZero(t, once)
	c.last.end = c.last.end.Add(-time.Hour)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { shown(t, registry, "") })
	}
	all.Wait()
	assert.Equal(t, once, h.calls.Load()-before, "scrapes at once")
	assert.Zero(t, scrape())

	require.NoError(t, server.Down())
	c.last.end = c.last.end.Add(-time.Hour)
	away := map[string]float64{"redis_up": 0, "redis_scrape_errors_total": 1}
	assert.Equal(t, away, shown(t, registry, ""), "nothing that is not known")
	server.Up()
	require.NoError(t, server.Wait())
	assert.Equal(t, away, shown(t, registry, ""))
	c.last.end = c.last.end.Add(-time.Hour)
	got := shown(t, registry, "redis_")
	assert.Equal(t, map[string]float64{"redis_up": 1, "redis_scrape_errors_total": 1}, got)
}

func TestScrapeEndsWhileRedisHangs(t *testing.T) {
	for name, options := range map[string]redis.Options{"default options": {}, "no timeout": {ReadTimeout: -1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.New(t)
			s, _ := sceneOn(t, server, options)
			_, registry := newCollector(s, CollectorConfig{MaxAge: -1, Timeout: time.Second})
			s.Publish("a")
			require.NoError(t, server.Signal(syscall.SIGSTOP))
			resume := sync.OnceValue(func() error { return server.Signal(syscall.SIGCONT) })
			defer func() { _ = resume() }()
			done := make(chan struct{})
			go func() {
				defer close(done)
				var all sync.WaitGroup
				for range 8 {
					all.Go(func() { assert.Equal(t, map[string]float64{"redis_up": 0}, shown(t, registry, "redis_up")) })
				}
				all.Wait()
			}()
			fixture.Wait(t, done, "the scrapes end")
			require.NoError(t, resume())
			require.EventuallyWithT(t, func(c *assert.CollectT) {
				got := shown(t, registry, "")
				assert.Equal(c, []float64{1, 1}, []float64{got["redis_up"], got["topic_due_messages{topic=t}"]})
			}, fixture.Soon, 10*time.Millisecond)
		})
	}
}

// TestScrapeShowsPartialResults while another part of Redis hangs, or a topic is damaged.
func TestScrapeShowsPartialResults(t *testing.T) {
	server := redistest.New(t)
	s, h := sceneOn(t, server, redis.Options{})
	s.Publish("a")
	scrape := func() map[string]float64 {
		_, registry := newCollector(s, CollectorConfig{Timeout: 500 * time.Millisecond})
		got := shown(t, registry, "")
		assert.Equal(t, []float64{0, 1}, []float64{got["redis_up"], got["redis_scrape_errors_total"]})
		return got
	}
	inbox, schedules, topic := "inbox_waiting_entries", "periodic_behind_schedules", "topic_due_messages{topic=t}"
	for part, without := range map[string]string{":inbox}": inbox, ":periodic}": schedules, ":topics}": topic} {
		h.hangs.Store(part)
		got := scrape()
		for _, name := range []string{inbox, schedules, topic} {
			_, is := got[name]
			assert.Equal(t, name != without, is, "%s while %s hangs", name, part)
		}
	}
	h.hangs.Store("")
	damaged := s.Beside("2")
	damaged.Publish("a")
	damaged.Break("keys")
	got := scrape()
	assert.Contains(t, got, topic)
	assert.NotContains(t, got, "topic_due_messages{topic=t2}")
}

// TestFold adds up the topics that exceed MaxPlaces, or whose groups do, and names that are the same as labels.
func TestFold(t *testing.T) {
	stats := func(topic string, groups ...string) admin.TopicStats {
		s := admin.TopicStats{
			Topic: topic, Partitions: 1, Keys: 2, Overdue: time.Second, DueWithin: []int{1, 20}, Counts: admin.Counts{Scheduled: 3},
		}
		for _, g := range groups {
			s.Groups = append(s.Groups, admin.GroupStats{
				Group: g, State: admin.GroupActive, Counts: admin.Counts{Dead: 1}, HaltedKeys: 2, LiveConsumers: 3, Overdue: time.Second,
			})
		}
		return s
	}
	var r reading
	r.fold([]admin.TopicStats{stats("a", "g"), stats("b", "g", "h", "i"), stats("c\xfe"), stats("c\xff", "g"), stats("d")}, 3)
	type topic struct {
		scheduled, partitions, keys int
		overdue                     time.Duration
		within                      string
	}
	topics := map[string]topic{}
	for name, s := range r.topics {
		topics[name] = topic{s.Scheduled, s.Partitions, s.Keys, s.Overdue, fmt.Sprint(s.DueWithin)}
	}
	twice := topic{6, 2, 4, time.Second, "[2 40]"}
	assert.Equal(t, map[string]topic{"a": {3, 1, 2, time.Second, "[1 20]"}, "c\uFFFD": twice, "other": twice}, topics)
	groups := map[[2]string][3]int{}
	for at, g := range r.groups {
		groups[at] = [3]int{g.Dead, g.HaltedKeys, g.LiveConsumers}
		assert.Equal(t, time.Second, g.Overdue)
	}
	assert.Equal(t, map[[2]string][3]int{{"a", "g"}: {1, 2, 3}, {"c\uFFFD", "g"}: {1, 2, 3}, {"other", "other"}: {3, 6, 9}}, groups)
}

// TestFoldedGroupsArePausedIfAllAre, since alerts are silent for a paused or a retired group.
func TestFoldedGroupsArePausedIfAllAre(t *testing.T) {
	still := admin.GroupStats{State: admin.GroupRetired, Pause: &redisdelay.Pause{}}
	for active, groups := range map[bool][]admin.GroupStats{false: {still, still}, true: {still, {State: admin.GroupActive}, still}} {
		var r reading
		r.fold([]admin.TopicStats{{Topic: "a", Groups: groups}}, 1)
		got := r.groups[[2]string{Other, Other}]
		assert.Equal(t, active, got.Pause == nil)
		assert.Equal(t, active, got.State == admin.GroupActive)
	}
}

func TestConfigErrors(t *testing.T) {
	a, err := admin.New(admin.Config{Client: fixture.New(t).Client})
	require.NoError(t, err)
	for _, c := range []struct {
		field  string
		config CollectorConfig
	}{
		{"Admin", CollectorConfig{}},
		{"MaxPlaces", CollectorConfig{Admin: a, MaxPlaces: -1}},
		{"Timeout", CollectorConfig{Admin: a, Timeout: -1}},
		{"DueWithin", CollectorConfig{Admin: a, DueWithin: []time.Duration{0}}},
		{"DueWithin", CollectorConfig{Admin: a, DueWithin: []time.Duration{1500 * time.Millisecond}}},
		{"DueWithin", CollectorConfig{Admin: a, DueWithin: []time.Duration{1e9, 2e9, 3e9, 4e9, 5e9, 6e9, 7e9, 8e9, 9e9, 10e9, 11e9}}},
	} {
		_, err := NewCollector(c.config)
		var wrong *redisdelay.ConfigError
		require.ErrorAs(t, err, &wrong, "%+v", c.config)
		assert.Equal(t, c.field, wrong.Field)
	}
	_, err = New(Config{MaxPlaces: -1})
	require.Error(t, err)
}
