package periodic_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

func newPeriodic(t *testing.T, client redis.UniversalClient, prefix string) *periodic.Scheduler {
	t.Helper()
	p, err := periodic.New(periodic.Config{Client: client, Prefix: prefix, PollInterval: 100 * time.Millisecond}, nil)
	require.NoError(t, err)
	return p
}

// run runs the schedules until the test ends.
func run(t *testing.T, p *periodic.Scheduler) {
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { assert.NoError(t, p.Run(ctx)) })
	t.Cleanup(func() { cancel(); ended.Wait() })
}

// subscribe returns the ticks of a topic, which are acked.
func subscribe(t *testing.T, client redis.UniversalClient, prefix, topic string) <-chan periodic.Tick {
	t.Helper()
	s, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: client, Prefix: prefix}, nil)
	require.NoError(t, err)
	messages, err := s.Subscribe(context.Background(), topic)
	require.NoError(t, err)
	ticks := make(chan periodic.Tick, 1000)
	go func() {
		defer close(ticks)
		for msg := range messages {
			tick, is := periodic.TickOf(msg)
			assert.True(t, is)
			ticks <- tick
			msg.Ack()
		}
	}()
	t.Cleanup(func() {
		assert.NoError(t, s.Close())
		for range ticks { // until the goroutine has ended
		}
	})
	return ticks
}

func next(t *testing.T, ticks <-chan periodic.Tick) periodic.Tick {
	t.Helper()
	select {
	case tick := <-ticks:
		return tick
	case <-time.After(time.Minute):
		require.FailNow(t, "no tick has come")
		return periodic.Tick{}
	}
}

func TestSetRemoveAndReplaceChangePendingTicks(t *testing.T) {
	t.Parallel()
	client, prefix := redistest.Client(t), prefixOf(t)
	p := newPeriodic(t, client, prefix)
	pending := func() int64 {
		return client.ZCard(t.Context(), "{"+prefix+":reports:0}:scheduled").Val()
	}
	s := periodic.Schedule{ID: "report", Topic: "reports", Cron: "0 7 * * 1", Zone: "Europe/Berlin", MinTicksAhead: 3}
	require.NoError(t, p.Set(t.Context(), s))
	assert.EqualValues(t, 3, pending())
	first := client.ZRange(t.Context(), "{"+prefix+":reports:0}:scheduled", 0, -1).Val()
	require.NoError(t, p.Set(t.Context(), s))
	assert.Equal(t, first, client.ZRange(t.Context(), "{"+prefix+":reports:0}:scheduled", 0, -1).Val(), "what is the same stays")

	s.Payload, s.MinTicksAhead = []byte("new"), 2
	require.NoError(t, p.Set(t.Context(), s))
	assert.EqualValues(t, 2, pending())
	assert.NotEqual(t, first[:2], client.ZRange(t.Context(), "{"+prefix+":reports:0}:scheduled", 0, -1).Val())

	var invalid *redisdelay.ConfigError
	require.ErrorAs(t, p.Pause(t.Context(), "report", redisdelay.Pause{For: time.Hour}), &invalid)
	require.NoError(t, p.Pause(t.Context(), "report", redisdelay.Pause{Reason: "holidays"}))
	assert.Zero(t, pending())
	status, err := p.Get(t.Context(), "report", 2)
	require.NoError(t, err)
	assert.Equal(t, "holidays", status.Pause.Reason)
	require.NoError(t, p.Resume(t.Context(), "report"))
	assert.EqualValues(t, 2, pending())

	s.Topic = "others"
	require.NoError(t, p.Set(t.Context(), s))
	assert.Zero(t, pending())
	assert.EqualValues(t, 2, client.ZCard(t.Context(), "{"+prefix+":others:0}:scheduled").Val())

	require.NoError(t, p.Remove(t.Context(), "report"))
	assert.Zero(t, client.ZCard(t.Context(), "{"+prefix+":others:0}:scheduled").Val())
	require.ErrorIs(t, p.Remove(t.Context(), "report"), periodic.ErrScheduleNotFound)
	list, err := p.List(t.Context(), 1)
	require.NoError(t, err)
	assert.Empty(t, list)
	require.NoError(t, p.Set(t.Context(), s), "it may come back")
	assert.EqualValues(t, 2, client.ZCard(t.Context(), "{"+prefix+":others:0}:scheduled").Val())
}

func TestAnOlderVersionDoesNotUndoANewerOne(t *testing.T) {
	t.Parallel()
	client, prefix := redistest.Client(t), prefixOf(t)
	p := newPeriodic(t, client, prefix)
	schedules := func(ids ...string) (list []periodic.Schedule) {
		for _, id := range ids {
			list = append(list, periodic.Schedule{ID: id, Topic: "reports", Cron: "@daily"})
		}
		return list
	}
	applied, err := p.Apply(t.Context(), "shop", 1, schedules("a", "b"))
	require.NoError(t, err)
	assert.Equal(t, periodic.Applied{Created: []string{"a", "b"}}, applied)
	applied, err = p.Apply(t.Context(), "shop", 2, schedules("b", "c"))
	require.NoError(t, err)
	assert.Equal(t, periodic.Applied{Created: []string{"c"}, Removed: []string{"a"}, Unchanged: 1}, applied)
	applied, err = p.Apply(t.Context(), "shop", 1, schedules("a", "b"))
	require.NoError(t, err)
	assert.True(t, applied.Superseded)
	list, err := p.List(t.Context(), 2)
	require.NoError(t, err)
	require.Len(t, list, 2)
	assert.Equal(t, "b", list[0].ID)
	assert.Equal(t, "c", list[1].ID)
	assert.Len(t, list[0].Next, 2)
	assert.Equal(t, 2, list[0].Stored)
	_, err = p.Apply(t.Context(), "other", 9, schedules("b"))
	require.ErrorIs(t, err, periodic.ErrOwned)
}

func TestConcurrentInstancesEndWithTheNewestVersion(t *testing.T) {
	t.Parallel()
	client, prefix := redistest.Client(t), prefixOf(t)
	var all sync.WaitGroup
	for i := range 16 {
		p := newPeriodic(t, client, prefix)
		version := int64(1 + i%2)
		all.Go(func() {
			var schedules []periodic.Schedule
			for n := range 20 {
				schedules = append(schedules, periodic.Schedule{
					ID: fmt.Sprintf("s%d.%d", version*int64(n%2), n), Topic: "reports", Cron: "@daily", Payload: fmt.Appendf(nil, "%d", version),
				})
			}
			_, err := p.Apply(context.Background(), "shop", version, schedules)
			assert.NoError(t, err)
		})
	}
	all.Wait()
	p := newPeriodic(t, client, prefix)
	list, err := p.List(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, list, 20)
	for _, s := range list {
		assert.Equal(t, "2", string(s.Payload))
		assert.Equal(t, 2, s.Stored)
	}
	bodies := client.HVals(t.Context(), "{"+prefix+":reports:0}:messages").Val()
	assert.Len(t, bodies, 40)
	assert.EqualValues(t, 40, client.ZCard(t.Context(), "{"+prefix+":reports:0}:scheduled").Val())
	for _, body := range bodies {
		msg, err := redisdelay.DefaultMarshaler{}.Unmarshal("reports", []byte(body))
		require.NoError(t, err)
		assert.Equal(t, "2", string(msg.Payload))
	}
}

func TestTrigger(t *testing.T) {
	t.Parallel()
	client, prefix := redistest.Client(t), prefixOf(t)
	p := newPeriodic(t, client, prefix)
	require.NoError(t, p.Set(t.Context(), periodic.Schedule{
		ID: "report", Topic: "reports", Cron: "0 7 * * *", Zone: "Europe/Berlin", Overlap: periodic.OverlapSkip,
	}))
	ticks := subscribe(t, client, prefix, "reports")
	for range 2 {
		require.NoError(t, p.Trigger(t.Context(), "report"))
		tick := next(t, ticks)
		assert.Equal(t, periodic.OriginTrigger, tick.Origin)
		assert.Equal(t, "Europe/Berlin", tick.Nominal.Location().String())
	}
	require.ErrorIs(t, p.Trigger(t.Context(), "other"), periodic.ErrScheduleNotFound)
}

func TestBadSchedulesAreRefused(t *testing.T) {
	t.Parallel()
	p := newPeriodic(t, redistest.Client(t), prefixOf(t))
	good := periodic.Schedule{ID: "report", Topic: "reports", Cron: "@daily"}
	for name, bad := range map[string]func(s *periodic.Schedule){
		"ID": func(s *periodic.Schedule) { s.ID = "a b" }, "Topic": func(s *periodic.Schedule) { s.Topic = "" },
		"Cron": func(s *periodic.Schedule) { s.Cron = "61 * * * *" }, "Zone": func(s *periodic.Schedule) { s.Zone = "Mars" },
		"Jitter": func(s *periodic.Schedule) { s.Jitter = -1 }, "Offset": func(s *periodic.Schedule) { s.Offset = 25 * time.Hour },
		"End": func(s *periodic.Schedule) { s.Start, s.End = time.Now(), time.Now().Add(-time.Hour) },
		"End, too late": func(s *periodic.Schedule) {
			s.End = time.Date(9999, 12, 31, 23, 59, 0, 0, time.FixedZone("", -5*3600))
		},
		"Start":         func(s *periodic.Schedule) { s.Start = time.Time{}.Add(-time.Hour) },
		"MinTicksAhead": func(s *periodic.Schedule) { s.MinTicksAhead = 1001 }, "StoreAhead": func(s *periodic.Schedule) { s.StoreAhead = time.Millisecond },
		"CatchUp": func(s *periodic.Schedule) { s.CatchUp = -5 }, "CatchUp, too long": func(s *periodic.Schedule) { s.CatchUp = 400 * 24 * time.Hour },
		"Overlap":         func(s *periodic.Schedule) { s.Overlap = "no" },
		"Metadata":        func(s *periodic.Schedule) { s.Metadata = message.Metadata{redisdelay.KeyMetadata: "k"} },
		"Topic, no UTF-8": func(s *periodic.Schedule) { s.Topic = "reports\xff" },
		"Metadata, value": func(s *periodic.Schedule) { s.Metadata = message.Metadata{"sig": "\xff\xfe"} },
		"Metadata, tick":  func(s *periodic.Schedule) { s.Metadata = message.Metadata{periodic.MissedMetadata: "1"} },
		"Metadata, name":  func(s *periodic.Schedule) { s.Metadata = message.Metadata{"\xff": "sig"} },
	} {
		s := good
		bad(&s)
		field, _, _ := strings.Cut(name, ",")
		err := p.Set(t.Context(), s)
		require.ErrorIs(t, err, periodic.ErrInvalidSchedule, name)
		assert.ErrorContains(t, err, field)
		require.ErrorIs(t, s.Validate(), periodic.ErrInvalidSchedule, name)
	}
	for owner, version := range map[string]int64{"": 1, "a b": 1, "shop": 0} {
		_, err := p.Apply(t.Context(), owner, version, nil)
		require.ErrorIs(t, err, periodic.ErrInvalidSchedule, owner)
	}
}

// between calls a function after each look at the definitions, and before the change that follows.
type between struct {
	redistest.Hook
	do func()
}

func (b *between) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if slices.Contains(cmd.Args(), any("")) && !slices.ContainsFunc(cmd.Args(), isVersions) {
			b.do()
		}
		return err
	}
}

func isVersions(arg any) bool {
	key, is := arg.(string)
	return is && strings.HasSuffix(key, "}:versions")
}

func TestAScheduleThatKeepsChangingIsAConflict(t *testing.T) {
	t.Parallel()
	client, prefix := redistest.Client(t), prefixOf(t)
	other := newPeriodic(t, redistest.Client(t), prefix)
	s := periodic.Schedule{ID: "report", Topic: "reports", Cron: "@daily"}
	require.NoError(t, other.Set(t.Context(), s))
	changes := 0
	client.AddHook(&between{do: func() {
		changes++
		s.Payload = []byte(fmt.Sprint(changes))
		assert.NoError(t, other.Set(t.Context(), s))
	}})
	p := newPeriodic(t, client, prefix)
	require.ErrorIs(t, p.Set(t.Context(), periodic.Schedule{ID: "report", Topic: "elsewhere", Cron: "@hourly"}), periodic.ErrConflict)
	require.ErrorIs(t, p.Pause(t.Context(), "report", redisdelay.Pause{}), periodic.ErrConflict)
	require.ErrorIs(t, p.Remove(t.Context(), "report"), periodic.ErrConflict)
}

func TestAScheduleWithAnInvalidMessageIsRejected(t *testing.T) {
	t.Parallel()
	client, prefix := redistest.Client(t), prefixOf(t)
	p, err := periodic.New(periodic.Config{Client: client, Prefix: prefix, Marshaler: redisdelay.JSONMarshaler{}}, nil)
	require.NoError(t, err)
	for name, bad := range map[string]periodic.Schedule{
		"too large": {Payload: bytes.Repeat([]byte("x"), 5<<20)}, "no text": {Metadata: message.Metadata{"a": "\xff"}},
	} {
		bad.ID, bad.Topic, bad.Cron = "report", "reports", "@daily"
		require.ErrorIs(t, p.Set(t.Context(), bad), periodic.ErrInvalidSchedule, name)
		_, err := p.Apply(t.Context(), "shop", 1, []periodic.Schedule{bad})
		require.ErrorIs(t, err, periodic.ErrInvalidSchedule, name)
	}
	list, err := p.List(t.Context(), 0)
	require.NoError(t, err)
	assert.Empty(t, list)
}

// prefixOf is a prefix of a test's own.
func prefixOf(t *testing.T) string {
	t.Helper()
	return "test-" + watermill.NewShortUUID()
}

// weighing notes how many bytes the largest pipeline had.
type weighing struct {
	redistest.Hook
	largest atomic.Int64
}

func (w *weighing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		bytes := 0
		for _, cmd := range cmds {
			for _, arg := range cmd.Args() {
				if body, is := arg.([]byte); is {
					bytes += len(body)
				}
			}
		}
		w.largest.Store(max(w.largest.Load(), int64(bytes)))
		return next(ctx, cmds)
	}
}

func TestLargeTicksAreStoredInSeveralCalls(t *testing.T) {
	t.Parallel()
	client, prefix, hook := redis.NewClient(redistest.Client(t).Options()), prefixOf(t), &weighing{}
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	client.AddHook(hook)
	const count = 8
	schedules := make([]periodic.Schedule, count)
	for i := range schedules {
		schedules[i] = periodic.Schedule{
			ID: fmt.Sprint(i), Topic: "reports", Cron: "@yearly", MinTicksAhead: 3, Payload: make([]byte, 1<<20),
		}
	}
	_, err := newPeriodic(t, client, prefix).Apply(t.Context(), "shop", 1, schedules)
	require.NoError(t, err)
	assert.EqualValues(t, 3*count, client.HLen(t.Context(), "{"+prefix+":reports:0}:messages").Val())
	assert.Less(t, hook.largest.Load(), int64(22<<20))
}

// TestALateApplyOfAnOlderVersionChangesNothing, not even a schedule that the newer version finds unchanged.
func TestALateApplyOfAnOlderVersionChangesNothing(t *testing.T) {
	t.Parallel()
	client, prefix := redistest.Client(t), prefixOf(t)
	declare := func(p *periodic.Scheduler, version int64, payload string) {
		_, err := p.Apply(t.Context(), "shop", version, []periodic.Schedule{{ID: "s", Topic: "reports", Cron: "@daily", Payload: []byte(payload)}})
		assert.NoError(t, err)
	}
	older := newPeriodic(t, client, prefix)
	declare(older, 1, "a")
	other := redistest.Client(t)
	reads := 0
	other.AddHook(&between{do: func() {
		reads++
		declare(older, 2, "b")
	}})
	declare(newPeriodic(t, other, prefix), 3, "a")
	require.Positive(t, reads)
	list, err := older.List(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Equal(t, "a", string(list[0].Payload))
}
