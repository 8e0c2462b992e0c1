package periodic_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/timetable"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/observe"
	"github.com/redisdelay/watermill-redisdelay/periodic"
	"github.com/redisdelay/watermill-redisdelay/redisdelaytest"
)

// A lab has one schedule, "report", and looks into Redis.
type lab struct {
	t      *testing.T
	client redis.UniversalClient
	prefix string
	p      *periodic.Scheduler
}

func newLab(t *testing.T, client redis.UniversalClient) *lab {
	t.Helper()
	l := &lab{t: t, client: client, prefix: prefixOf(t)}
	l.p = newPeriodic(t, client, l.prefix)
	return l
}

func (l *lab) set(payload string) error {
	return l.p.Set(context.Background(), periodic.Schedule{
		ID: "report", Topic: "reports", Cron: "0 7 * * 1", Zone: "Europe/Berlin", Payload: []byte(payload),
	})
}

func (l *lab) key(kind string) string { return "{" + l.prefix + ":reports:0}:" + kind }

// pending are the payloads of what is stored ahead, by due time. Each must be there once.
func (l *lab) pending() map[string]string {
	l.t.Helper()
	var scheduled *redis.ZSliceCmd
	var bodies *redis.MapStringStringCmd
	_, err := l.client.TxPipelined(l.t.Context(), func(p redis.Pipeliner) error { // ticks may be replaced meanwhile
		scheduled, bodies = p.ZRangeWithScores(l.t.Context(), l.key("scheduled"), 0, -1), p.HGetAll(l.t.Context(), l.key("messages"))
		return nil
	})
	require.NoError(l.t, err)
	pending := map[string]string{}
	for _, z := range scheduled.Val() {
		due := time.UnixMilli(int64(z.Score)).UTC().Format(time.RFC3339)
		msg, err := redisdelay.DefaultMarshaler{}.Unmarshal("reports", []byte(bodies.Val()[z.Member.(string)]))
		require.NoError(l.t, err)
		assert.NotContains(l.t, pending, due)
		pending[due] = string(msg.Payload)
	}
	return pending
}

// definition reads the revision and the rest of what is defined.
func (l *lab) definition() (revision int64, rest string) {
	l.t.Helper()
	text, rest, _ := strings.Cut(l.client.HGet(l.t.Context(), "{"+l.prefix+":periodic}:schedules", "report").Val(), " ")
	revision, err := strconv.ParseInt(text, 10, 64)
	require.NoError(l.t, err)
	return revision, rest
}

// redefine overwrites the definition, which is to be taken since some time ago.
func (l *lab) redefine(revision int64, rest string, ago time.Duration) {
	l.t.Helper()
	require.NoError(l.t, l.client.HSet(l.t.Context(), "{"+l.prefix+":periodic}:schedules", "report", fmt.Sprintf("%d %s", revision, rest)).Err())
	require.NoError(l.t, l.client.ZAdd(l.t.Context(), "{"+l.prefix+":periodic}:upcoming", redis.Z{
		Member: "report", Score: float64(time.Now().Add(-ago).UnixMilli()),
	}).Err())
}

// setMinTicksAhead changes how many ticks are stored ahead, as the schedule's definition says. It is to be taken since some time ago.
func (l *lab) setMinTicksAhead(ticks int, ago time.Duration) {
	l.t.Helper()
	revision, rest := l.definition()
	stored := regexp.MustCompile(`"MinTicksAhead":\d+`)
	require.Regexp(l.t, stored, rest)
	l.redefine(revision, stored.ReplaceAllString(rest, `"MinTicksAhead":`+strconv.Itoa(ticks)), ago)
}

// moveTo overwrites the zone of the definition, which is to be taken since some time ago.
func (l *lab) moveTo(zone string, ago time.Duration) {
	l.t.Helper()
	revision, rest := l.definition()
	moved := strings.Replace(rest, `"Zone":"Europe/Berlin"`, `"Zone":"`+zone+`"`, 1)
	require.NotEqual(l.t, rest, moved)
	l.redefine(revision, moved, ago)
}

// rounds does so many rounds that what is lost is found, taken up, and stored.
func (l *lab) rounds() {
	l.t.Helper()
	for range 3 {
		require.NoError(l.t, l.p.Round(l.t.Context()))
	}
}

// waitForTicks waits until so many ticks are stored ahead.
func (l *lab) waitForTicks(ticks int) {
	l.t.Helper()
	require.Eventually(l.t, func() bool {
		return l.client.ZCard(context.Background(), l.key("scheduled")).Val() == int64(ticks)
	}, fixture.Soon, 10*time.Millisecond)
}

func TestRestartsChangeNoPendingTick(t *testing.T) {
	t.Parallel()
	l := newLab(t, redistest.Client(t))
	require.NoError(t, l.set("x"))
	before := l.client.HGetAll(t.Context(), l.key("messages")).Val()
	require.Len(t, before, 2)
	for range 3 {
		l.p = newPeriodic(t, l.client, l.prefix)
		require.NoError(t, l.set("x"))
		l.redefine(l.mustRevision(), l.mustRest(), 0)
		require.NoError(t, l.p.Round(t.Context()))
	}
	assert.Equal(t, before, l.client.HGetAll(t.Context(), l.key("messages")).Val())
}

func (l *lab) mustRevision() int64 { revision, _ := l.definition(); return revision }
func (l *lab) mustRest() string    { _, rest := l.definition(); return rest }

// TestSetUsesTheTimeLimitOfItsCaller, and not that of a round of Run.
func TestSetUsesTheTimeLimitOfItsCaller(t *testing.T) {
	t.Parallel()
	l := newLab(t, redistest.Client(t))
	l.p.SetRoundTimeout(time.Nanosecond)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, l.p.Set(ctx, periodic.Schedule{ID: "report", Topic: "reports", Cron: "@hourly"}))
	assert.NotEmpty(t, l.pending())
}

func TestTheLastOfConcurrentSetsAndRemovesWins(t *testing.T) {
	t.Parallel()
	l := newLab(t, redistest.Client(t))
	run(t, newPeriodic(t, l.client, l.prefix))
	for round := range 4 {
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				if i%2 == 0 {
					_ = l.p.Remove(context.Background(), "report") // it may be gone already
				} else {
					assert.NoError(t, l.set(fmt.Sprint(i)))
				}
			})
		}
		all.Wait()
		require.NoError(t, l.set(fmt.Sprint("last ", round)))
		pending := l.pending()
		require.Len(t, pending, 2)
		for _, payload := range pending {
			assert.Equal(t, fmt.Sprint("last ", round), payload)
		}
	}
	require.NoError(t, l.p.Remove(t.Context(), "report"))
	assert.Empty(t, l.pending())
	assert.Zero(t, l.client.HLen(t.Context(), l.key("messages")).Val())
}

func TestALostTickRecordIsRestored(t *testing.T) {
	t.Parallel()
	l := newLab(t, redistest.Client(t))
	inThreeDays := int(time.Now().UTC().Weekday()+3) % 7 // so no tick is due within the 48 hours below
	require.NoError(t, l.p.Set(t.Context(), periodic.Schedule{
		ID: "report", Topic: "reports", Cron: fmt.Sprintf("0 7 * * %d", inThreeDays), Payload: []byte("x"),
	}))
	before := l.pending()
	_, rest := l.definition()
	require.NoError(t, l.client.Del(t.Context(), l.key("ticks"), l.key("scheduled"), l.key("messages")).Err())
	l.redefine(time.Now().Add(-48*time.Hour).UnixMicro(), rest, 0)
	l.rounds()
	assert.Equal(t, before, l.pending())
}

// TestADeletedTopicGetsNoOldTicks of a schedule that was changed since: they may have been handled.
func TestADeletedTopicGetsNoOldTicks(t *testing.T) {
	t.Parallel()
	l := newLab(t, redistest.Client(t))
	require.NoError(t, l.set("old"))
	before := l.pending()
	revision, rest := l.definition()
	l.redefine(revision-(60*24*time.Hour).Microseconds(), rest, 0)
	require.NoError(t, l.client.Del(t.Context(), l.key("ticks"), l.key("scheduled"), l.key("messages")).Err())
	require.NoError(t, l.set("new"))
	after := l.pending()
	assert.Len(t, after, 2)
	for due := range before {
		assert.Equal(t, "new", after[due])
	}
}

// TestALateRemovalRemovesPendingTicks: Remove has failed halfway, and no process has run for longer than a removal is remembered.
func TestALateRemovalRemovesPendingTicks(t *testing.T) {
	t.Parallel()
	l := newLab(t, redistest.Client(t))
	require.NoError(t, l.set("x"))
	record := l.client.HGet(t.Context(), l.key("ticks"), "report").Val()
	messages, ids := l.client.HGetAll(t.Context(), l.key("messages")).Val(), l.client.ZRangeWithScores(t.Context(), l.key("scheduled"), 0, -1).Val()
	require.NoError(t, l.p.Remove(t.Context(), "report"))
	require.NoError(t, l.client.HSet(t.Context(), l.key("messages"), messages).Err()) // as if it had not reached the topic
	require.NoError(t, l.client.ZAdd(t.Context(), l.key("scheduled"), ids...).Err())
	revision, rest := l.definition()
	later := 25 * time.Hour
	l.redefine(revision-later.Microseconds(), rest, later)
	number, stored, _ := strings.Cut(record, " ")
	defined, err := strconv.ParseInt(number, 10, 64)
	require.NoError(t, err)
	record = fmt.Sprintf("%d %s", defined-later.Microseconds(), stored)
	require.NoError(t, l.client.HSet(t.Context(), l.key("ticks"), "report", record).Err())
	l.rounds()
	assert.Empty(t, l.pending())
	assert.False(t, l.client.HExists(t.Context(), l.key("ticks"), "report").Val())
}

// TestTheNextTickAfterItsTopicWasDeleted is the one that was stored ahead and is lost.
func TestTheNextTickAfterItsTopicWasDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := redisdelaytest.New(t)
		p, err := periodic.New(periodic.Config{Client: r.Client()}, nil)
		require.NoError(t, err)
		a, err := admin.New(admin.Config{Client: r.Client()})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		var runs sync.WaitGroup
		runs.Go(func() { assert.NoError(t, p.Run(ctx)) })
		schedule := periodic.Schedule{ID: "report", Topic: "reports", Cron: "0 7 * * *", Offset: 30 * time.Minute, CatchUp: 48 * time.Hour}
		require.NoError(t, p.Set(ctx, schedule))
		r.Advance(2*24*time.Hour + 12*time.Hour)
		require.NoError(t, a.DeleteTopic(ctx, "reports", admin.DeleteOptions{Force: true}))
		r.Advance(24 * time.Hour)
		waiting := r.Undelivered("reports")
		require.NotEmpty(t, waiting)
		tick, _ := periodic.TickOf(waiting[0].Message)
		assert.Equal(t, "2000-01-04T07:00:00Z", tick.Nominal.Format(time.RFC3339))
		stop()
		runs.Wait()
	})
}

func TestAScheduleContinuesAfterItsLastChangeIsLost(t *testing.T) {
	t.Parallel()
	l := newLab(t, redistest.Client(t))
	require.NoError(t, l.set("old"))
	revision, rest := l.definition()
	require.NoError(t, l.set("new"))
	l.redefine(revision, rest, 0)
	l.rounds()
	assert.Equal(t, []string{"old", "old"}, slices.Collect(maps.Values(l.pending())))
}

// TestAHostReleasesAScheduleThatItCannotUse to other hosts at once.
func TestAHostReleasesAScheduleThatItCannotUse(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(l *lab){
		"its zone is not known":      func(l *lab) { l.moveTo("Mars", time.Hour) },
		"its definition is not JSON": func(l *lab) { l.redefine(l.mustRevision(), "{", time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, redistest.Client(t))
			require.NoError(t, l.set("x"))
			spoil(l)
			require.NoError(t, l.p.Round(t.Context()))
			upcoming := l.client.ZScore(t.Context(), "{"+l.prefix+":periodic}:upcoming", "report").Val()
			assert.Less(t, upcoming, float64(time.Now().Add(-59*time.Minute).UnixMilli()))
		})
	}
}

// TestUnusableSchedulesDoNotDelayOthers: there are as many as a process takes at once, and they come first.
func TestUnusableSchedulesDoNotDelayOthers(t *testing.T) {
	t.Run("many", func(t *testing.T) { unusableDelayNoOthers(t, timetable.PageSize, 0) })
	t.Run("large", func(t *testing.T) { unusableDelayNoOthers(t, 8, 1<<20) })
}

func unusableDelayNoOthers(t *testing.T, count, bytes int) {
	t.Helper()
	l, log := newLab(t, redistest.Client(t)), &fixture.Log{}
	require.NoError(t, l.set("x"))
	l.setMinTicksAhead(5, time.Minute)
	for i := range count {
		id := fmt.Sprint("bad ", i)
		require.NoError(t, l.client.HSet(t.Context(), "{"+l.prefix+":periodic}:schedules", id, "1 {"+strings.Repeat(" ", bytes)).Err())
		require.NoError(t, l.client.ZAdd(t.Context(), "{"+l.prefix+":periodic}:upcoming", redis.Z{Member: id, Score: 1}).Err())
	}
	p, err := periodic.New(periodic.Config{Client: l.client, Prefix: l.prefix, PollInterval: 100 * time.Millisecond}, log)
	require.NoError(t, err)
	run(t, p)
	l.waitForTicks(5)
	assert.Equal(t, 1, log.Count("bad 7]"), "the log says it once")
}

// TestADamagedDefinitionIsListed, and may be removed and replaced.
func TestADamagedDefinitionIsListed(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"no revision": "garbage", "no space": "17", "no JSON": "17 {", "empty": "17 {}", "no schedule": `17 {"CatchUp":"later"}`} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, redistest.Client(t))
			damage := func() {
				require.NoError(t, l.client.HSet(t.Context(), "{"+l.prefix+":periodic}:schedules", "report", text).Err())
				require.NoError(t, l.client.ZAdd(t.Context(), "{"+l.prefix+":periodic}:upcoming", redis.Z{Member: "report", Score: 1}).Err())
			}
			damage()
			require.NoError(t, l.p.Round(t.Context()))
			list, err := l.p.List(t.Context(), 1)
			require.NoError(t, err)
			require.Len(t, list, 1)
			assert.Contains(t, list[0].Problem, "damaged")
			require.ErrorContains(t, l.p.Pause(t.Context(), "report", redisdelay.Pause{}), "damaged")

			require.NoError(t, l.p.Remove(t.Context(), "report"))
			require.ErrorIs(t, l.p.Remove(t.Context(), "report"), periodic.ErrScheduleNotFound)
			damage()
			require.NoError(t, l.set("x"))
			status, err := l.p.Get(t.Context(), "report", 1)
			require.NoError(t, err)
			assert.Equal(t, 2, status.Stored)
			assert.Empty(t, status.Problem)
		})
	}
}

// deaf is a connection to a server that takes no more calls once it hangs.
type deaf struct {
	net.Conn
	hangs *atomic.Bool
}

func (c deaf) Write(b []byte) (int, error) {
	if c.hangs.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// TestAHangingMasterDoesNotDelayOtherTopics: the schedules of two topics are taken together.
func TestAHangingMasterDoesNotDelayOtherTopics(t *testing.T) {
	prefix, cluster := prefixOf(t), redistest.SharedCluster(t)
	tag := func(part string) string { return "{" + prefix + ":" + part + "}" }
	master := func(key string) string {
		node, err := cluster.Client(t).MasterForKey(t.Context(), key)
		require.NoError(t, err)
		return node.Options().Addr
	}
	there := []string{master(tag("periodic")), master(tag("topics"))}
	n := 0
	topic := func(hangs func(at string) bool) string { // another one whose master may hang
		for ; ; n++ {
			if name := fmt.Sprint("t", n); hangs(master(tag(name + ":0"))) {
				return name
			}
		}
	}
	a := topic(func(at string) bool { return !slices.Contains(there, at) })
	hanging := master(tag(a + ":0"))
	b := topic(func(at string) bool { return at != hanging })
	var hangs atomic.Bool
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: cluster.Addrs(), ReadTimeout: 30 * time.Second, MaxRetries: -1,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err == nil && addr == hanging {
				conn = deaf{conn, &hangs}
			}
			return conn, err
		},
	})
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	p := newPeriodic(t, client, prefix)
	_, err := p.Apply(t.Context(), "two", 1, []periodic.Schedule{
		{ID: "a", Topic: a, Cron: "@every 1s", StoreAhead: 2 * time.Second}, {ID: "b", Topic: b, Cron: "@every 1s", StoreAhead: 2 * time.Second},
	})
	require.NoError(t, err)
	p.SetRoundTimeout(time.Second)
	hangs.Store(true)
	run(t, p)
	record := func() string { return client.HGet(context.Background(), tag(b+":0")+":ticks", "b").Val() }
	for range 3 {
		before := record()
		require.Eventually(t, func() bool { return record() != before }, time.Minute, 10*time.Millisecond)
	}
}

func TestTicksAreDeliveredOnAClusterWithPartitions(t *testing.T) {
	t.Parallel()
	client, prefix := redistest.SharedCluster(t).Client(t), prefixOf(t)
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client, Prefix: prefix, Partitions: 3}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, publisher.Close()) })
	require.NoError(t, publisher.Publish("beats", message.NewMessage("first", nil)))
	p := newPeriodic(t, client, prefix)
	all := time.Minute // a machine that stands still makes ticks late
	_, err = p.Apply(t.Context(), "hearts", 1, []periodic.Schedule{
		{ID: "a", Topic: "beats", Cron: "@every 1s", Overlap: periodic.OverlapInOrder, StoreAhead: 2 * time.Second, CatchUp: all},
		{ID: "b", Topic: "beats", Cron: "@every 1s", StoreAhead: 2 * time.Second, CatchUp: all},
	})
	require.NoError(t, err)
	run(t, p)
	s, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: client, Prefix: prefix, MaxInFlight: 4}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	messages, err := s.Subscribe(context.Background(), "beats")
	require.NoError(t, err)
	seen := map[string][]time.Time{} // those of a come in order, while those of b may overtake each other
	for deadline := time.After(20 * time.Second); len(seen["a"]) < 4 || len(seen["b"]) < 4 || !eachSecond(seen["b"]); {
		select {
		case msg := <-messages:
			if tick, is := periodic.TickOf(msg); is {
				assert.NotContains(t, seen[tick.Schedule], tick.Nominal)
				seen[tick.Schedule] = append(seen[tick.Schedule], tick.Nominal)
			}
			msg.Ack()
		case <-deadline:
			require.FailNow(t, "no ticks", "%v", seen)
		}
	}
	assert.True(t, slices.IsSortedFunc(seen["a"], time.Time.Compare), seen)
	assert.True(t, eachSecond(seen["a"]), seen)
}

// eachSecond tells whether times are a second apart, in whatever order they came.
func eachSecond(times []time.Time) bool {
	times = slices.SortedFunc(slices.Values(times), time.Time.Compare)
	for i, at := range times {
		if !at.Equal(times[0].Add(time.Duration(i) * time.Second)) {
			return false
		}
	}
	return true
}

// TestATopicOfANewerProtocolGetsNoTicks, and delays no other topic.
func TestATopicOfANewerProtocolGetsNoTicks(t *testing.T) {
	t.Parallel()
	l := newLab(t, redistest.Client(t))
	require.NoError(t, l.client.HSet(t.Context(), "{"+l.prefix+":topics}", "reports", "99").Err())
	_, err := l.p.Apply(t.Context(), "shop", 1, []periodic.Schedule{
		{ID: "newer", Topic: "reports", Cron: "@daily"}, {ID: "known", Topic: "known", Cron: "@daily"},
	})
	require.ErrorIs(t, err, redisdelay.ErrProtocolMismatch)
	assert.Zero(t, l.client.Exists(t.Context(), l.key("scheduled"), l.key("messages"), l.key("ticks")).Val())
	assert.EqualValues(t, 2, l.client.ZCard(t.Context(), "{"+l.prefix+":known:0}:scheduled").Val())
}

// panicky is a marshaler that may panic.
type panicky struct {
	redisdelay.DefaultMarshaler
	panics *atomic.Bool
}

func (m panicky) Marshal(topic string, msg *message.Message) ([]byte, error) {
	if m.panics.Load() && topic == "bad" {
		panic("no message of this topic")
	}
	return m.DefaultMarshaler.Marshal(topic, msg)
}

func TestAPanicInTheMarshalerDoesNotStopOtherSchedules(t *testing.T) {
	t.Parallel()
	l, panics := newLab(t, redistest.Client(t)), &atomic.Bool{}
	p, err := periodic.New(periodic.Config{Client: l.client, Prefix: l.prefix, Marshaler: panicky{panics: panics}}, nil)
	require.NoError(t, err)
	bad := periodic.Schedule{ID: "bad", Topic: "bad", Cron: "@every 1s", MinTicksAhead: 1, StoreAhead: time.Second}
	require.NoError(t, p.Set(t.Context(), bad))
	require.NoError(t, l.set("x"))
	l.setMinTicksAhead(4, 0)
	panics.Store(true)
	due := redis.Z{Member: "bad", Score: 1}
	require.NoError(t, l.client.ZAdd(t.Context(), "{"+l.prefix+":periodic}:upcoming", due).Err())
	require.NoError(t, l.client.Del(t.Context(), "{"+l.prefix+":bad:0}:ticks").Err()) // so that there is a tick to store
	var panicked *redisdelay.PanicError
	require.ErrorAs(t, p.Round(t.Context()), &panicked)
	assert.Len(t, l.pending(), 4)
	err = p.Set(t.Context(), periodic.Schedule{ID: "plain", Topic: "bad", Cron: "@daily"})
	require.ErrorIs(t, err, periodic.ErrInvalidSchedule)
	require.ErrorAs(t, err, &panicked)
	require.ErrorAs(t, p.Trigger(t.Context(), "bad"), &panicked)
}

// TestEachTickIsReportedOnce, and missed ticks with the one that makes up for them.
func TestEachTickIsReportedOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t, redistest.Client(t))
	stored, missed := map[string]int{}, 0
	p, err := periodic.New(periodic.Config{Client: l.client, Prefix: l.prefix, Observer: observe.Observer{
		Ticked: func(e observe.Ticked) {
			assert.Equal(t, "reports", e.Topic)
			stored[e.Schedule] += e.Stored
			missed += e.Missed
		},
	}}, nil)
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, p.Set(t.Context(), periodic.Schedule{ID: "other", Topic: "reports", Cron: "0 7 * * 1"}))
	}
	require.NoError(t, p.Set(t.Context(), periodic.Schedule{ID: "report", Topic: "reports", Cron: "@hourly", End: time.Now()}))
	revision, rest := l.definition()
	l.redefine(revision-(10*time.Hour).Microseconds(), rest, 0)
	require.NoError(t, l.client.HDel(t.Context(), l.key("ticks"), "report").Err())
	for range 3 {
		require.NoError(t, p.Round(t.Context()))
	}
	assert.Equal(t, map[string]int{"other": 2, "report": 1}, stored)
	assert.Equal(t, 9, missed)
}

// TestAnEndedScheduleContinuesFromNow if it gets a later end: no definition had the ticks between.
func TestAnEndedScheduleContinuesFromNow(t *testing.T) {
	t.Parallel()
	l := newLab(t, redistest.Client(t))
	s := periodic.Schedule{ID: "report", Topic: "reports", Cron: "@hourly", End: time.Now().Add(-30 * time.Hour)}
	require.NoError(t, l.p.Set(t.Context(), s))
	revision, rest := l.definition()
	l.redefine(revision-(48*time.Hour).Microseconds(), rest, 0)
	s.End = time.Time{}
	require.NoError(t, l.p.Set(t.Context(), s))
	for due := range l.pending() {
		assert.Greater(t, due, time.Now().UTC().Format(time.RFC3339))
	}
	l.waitForTicks(2)
}

// TestSchedulesContinueFromTheirDefinitionsAlone: Redis has lost when the next ticks are to be stored.
func TestSchedulesContinueFromTheirDefinitionsAlone(t *testing.T) {
	t.Parallel()
	l := newLab(t, redistest.Client(t))
	require.NoError(t, l.set("x"))
	l.setMinTicksAhead(4, 0)
	a, err := admin.New(admin.Config{Client: l.client, Prefix: l.prefix})
	require.NoError(t, err)
	require.NoError(t, l.client.Del(t.Context(), "{"+l.prefix+":periodic}:upcoming").Err())
	status, err := l.p.Get(t.Context(), "report", 1)
	require.NoError(t, err)
	assert.Contains(t, status.Problem, "lost")
	behind, _, err := a.SchedulesBehind(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, behind)

	run(t, l.p)
	l.waitForTicks(4)
	status, err = l.p.Get(t.Context(), "report", 1)
	require.NoError(t, err)
	assert.Empty(t, status.Problem)
	behind, _, err = a.SchedulesBehind(t.Context())
	require.NoError(t, err)
	assert.Zero(t, behind)
}

// TestAChangeWakesRun: it would sleep for a day.
func TestAChangeWakesRun(t *testing.T) {
	t.Parallel()
	client, prefix := redistest.Client(t), prefixOf(t)
	p, err := periodic.New(periodic.Config{Client: client, Prefix: prefix, PollInterval: 24 * time.Hour}, nil)
	require.NoError(t, err)
	sleeping := &counter{}
	client.AddHook(sleeping)
	run(t, p)
	require.Eventually(t, func() bool { return sleeping.calls.Load() > 0 }, time.Minute, time.Millisecond)
	for name, declare := range map[string]func(s periodic.Schedule) error{
		"Set": func(s periodic.Schedule) error { return p.Set(t.Context(), s) },
		"Apply": func(s periodic.Schedule) error {
			_, err := p.Apply(t.Context(), "shop", 1, []periodic.Schedule{s})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ticks := subscribe(t, client, prefix, name)
			require.NoError(t, declare(periodic.Schedule{ID: name, Topic: name, Cron: "@every 1s", MinTicksAhead: 1, StoreAhead: time.Second}))
			for range 3 { // more than the declaration has stored
				next(t, ticks)
			}
		})
	}
}
