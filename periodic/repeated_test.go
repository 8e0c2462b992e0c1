package periodic_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

// onTicks does something to calls that read or write the record of a schedule.
type onTicks struct {
	redistest.Hook
	do func(call func() error) error // nil: nothing
}

func (o *onTicks) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		call := func() error { return next(ctx, cmds) }
		if o.do == nil || !aboutTicks(cmds) {
			return call()
		}
		err := o.do(call)
		for _, cmd := range cmds {
			if err != nil {
				cmd.SetErr(err)
			}
		}
		return err
	}
}

func aboutTicks(cmds []redis.Cmder) bool {
	for _, cmd := range cmds {
		for _, arg := range cmd.Args() {
			if strings.HasSuffix(fmt.Sprint(arg), "}:ticks") {
				return true
			}
		}
	}
	return false
}

// record has the words of what the topic knows of the schedule; see tick.lua.
func (l *lab) record() []string {
	l.t.Helper()
	return strings.Fields(l.client.HGet(l.t.Context(), l.key("ticks"), "report").Val())
}

// TestACallThatIsSentTwiceStoresATickOnce in the record, too, which would else have fewer ticks than are wanted.
func TestACallThatIsSentTwiceStoresATickOnce(t *testing.T) {
	t.Parallel()
	client := redistest.Client(t)
	l := newLab(t, client)
	s := periodic.Schedule{ID: "report", Topic: "reports", Cron: "0 7 * * 1", MinTicksAhead: 3}
	require.NoError(t, l.p.Set(t.Context(), s))
	once := l.record()
	require.Len(t, once, 3+2*3)

	client.AddHook(&onTicks{do: func(call func() error) error { return errors.Join(call(), call()) }})
	s.Overlap = periodic.OverlapSkip
	require.NoError(t, l.p.Set(t.Context(), s))
	twice := l.record()
	require.Len(t, twice, len(once), "%v", twice)
	assert.NotEqual(t, once[0], twice[0], "the revision")
	assert.Equal(t, once[1], twice[1], "the cursor")
	assert.Len(t, l.pending(), 3)
}

// TestARetryAfterAnErrorCompletesTheChange although the definition is changed already. No process runs the schedule.
func TestARetryAfterAnErrorCompletesTheChange(t *testing.T) {
	t.Parallel()
	weekly := periodic.Schedule{ID: "report", Topic: "reports", Cron: "0 7 * * 1", Payload: []byte("old")}
	changed := weekly
	changed.Payload = []byte("new")
	elsewhere := weekly
	elsewhere.Topic = "elsewhere"
	ctx := context.Background()
	set := func(s periodic.Schedule) func(l *lab) error { return func(l *lab) error { return l.p.Set(ctx, s) } }
	apply := func(list ...periodic.Schedule) func(l *lab) error {
		return func(l *lab) error {
			_, err := l.p.Apply(ctx, "shop", 1, list)
			return err
		}
	}
	pause := func(l *lab) error { return l.p.Pause(ctx, "report", redisdelay.Pause{Reason: "holidays"}) }
	resume := func(l *lab) error { return l.p.Resume(ctx, "report") }
	remove := func(l *lab) error { return l.p.Remove(ctx, "report") }
	for name, c := range map[string]struct {
		before []func(l *lab) error
		call   func(l *lab) error
		again  error // of the second call
		want   int   // new ticks
	}{
		"the first Set":        {nil, set(changed), nil, 2},
		"Set":                  {[]func(l *lab) error{set(weekly)}, set(changed), nil, 2},
		"Set of another topic": {[]func(l *lab) error{set(elsewhere)}, set(changed), nil, 2},
		"Apply":                {nil, apply(changed), nil, 2},
		"Apply of nothing":     {[]func(l *lab) error{apply(weekly)}, apply(), nil, 0},
		"Pause":                {[]func(l *lab) error{set(weekly)}, pause, nil, 0},
		"Resume":               {[]func(l *lab) error{set(changed), pause}, resume, nil, 2},
		"Remove":               {[]func(l *lab) error{set(weekly)}, remove, periodic.ErrScheduleNotFound, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, redistest.Client(t))
			for _, call := range c.before {
				require.NoError(t, call(l))
			}
			cutting := redistest.Client(t)
			cut := &onTicks{do: func(func() error) error { return errors.New("cut off") }}
			cutting.AddHook(cut)
			l.p = newPeriodic(t, cutting, l.prefix)
			require.ErrorContains(t, c.call(l), "cut off")
			cut.do = nil
			require.ErrorIs(t, c.call(l), c.again)
			var want []string
			for range c.want {
				want = append(want, "new")
			}
			assert.Equal(t, want, slices.Collect(maps.Values(l.pending())))
			assert.Zero(t, l.client.ZCard(ctx, "{"+l.prefix+":elsewhere:0}:scheduled").Val())
		})
	}
}

// TestManySchedulesAreChangedInFewCalls: with a call for each, Redis far away, and many schedules, time would run out.
func TestManySchedulesAreChangedInFewCalls(t *testing.T) {
	const schedules = 20
	client := redistest.Client(t)
	l := newLab(t, client)
	apply := func(count int, topic string) periodic.Applied {
		var list []periodic.Schedule
		for i := range count {
			list = append(list, periodic.Schedule{ID: fmt.Sprint(i), Topic: topic, Cron: "0 7 * * 1"})
		}
		applied, err := l.p.Apply(t.Context(), "shop", 1, list)
		require.NoError(t, err)
		return applied
	}
	stored := func(topic string) int64 {
		return client.ZCard(t.Context(), "{"+l.prefix+":"+topic+":0}:scheduled").Val()
	}
	apply(schedules, "reports")
	calls := 0
	client.AddHook(&onTicks{do: func(call func() error) error { calls++; return call() }})
	apply(schedules, "letters")
	assert.Zero(t, stored("reports"))
	assert.EqualValues(t, 2*schedules, stored("letters"))
	assert.Less(t, calls, schedules, "moved")
	calls = 0
	assert.Len(t, apply(0, "").Removed, schedules)
	assert.Zero(t, stored("letters"))
	assert.Less(t, calls, schedules, "removed")

	assert.EqualValues(t, schedules, client.HLen(t.Context(), "{"+l.prefix+":letters:0}:ticks").Val(), "nobody can bring them back meanwhile")
	dayAgo := fmt.Sprint(time.Now().Add(-25 * time.Hour).UnixMicro()) // since they were removed
	for id, text := range client.HGetAll(t.Context(), "{"+l.prefix+":periodic}:schedules").Val() {
		_, definition, _ := strings.Cut(text, " ")
		require.NoError(t, client.HSet(t.Context(), "{"+l.prefix+":periodic}:schedules", id, dayAgo+" "+definition).Err())
		require.NoError(t, client.ZAdd(t.Context(), "{"+l.prefix+":periodic}:upcoming", redis.Z{Member: id}).Err())
		require.NoError(t, client.HSet(t.Context(), "{"+l.prefix+":letters:0}:ticks", id, dayAgo+" none 0").Err())
	}
	before := reads(t, client)
	require.NoError(t, l.p.Round(t.Context()))
	assert.Less(t, reads(t, client)-before, schedules, "forgotten")
	assert.Zero(t, client.Exists(t.Context(), "{"+l.prefix+":periodic}:schedules", "{"+l.prefix+":periodic}:upcoming", "{"+l.prefix+":letters:0}:ticks").Val())
}

// reads is how often Redis has read from a connection: once for many calls that come together.
func reads(t *testing.T, client *redis.Client) int {
	t.Helper()
	n, err := strconv.Atoi(client.InfoMap(t.Context(), "stats").Item("Stats", "total_reads_processed"))
	require.NoError(t, err)
	return n
}

// TestUnchangedSchedulesWriteNothing: Redis may reject writes.
func TestUnchangedSchedulesWriteNothing(t *testing.T) {
	t.Parallel()
	client := redistest.Client(t)
	l := newLab(t, client)
	require.NoError(t, l.set("x"))
	why := redisdelay.Pause{Reason: "holidays"}
	require.NoError(t, l.p.Pause(t.Context(), "report", why))
	client.AddHook(redistest.Failing{Err: func(cmd redis.Cmder) error {
		if slices.Contains(cmd.Args(), any("{"+l.prefix+":periodic}:versions")) {
			return errors.New("out of memory")
		}
		return nil
	}})
	require.NoError(t, l.p.Pause(t.Context(), "report", why))
	require.ErrorIs(t, l.p.Remove(t.Context(), "another"), periodic.ErrScheduleNotFound)
	require.ErrorContains(t, l.p.Resume(t.Context(), "report"), "out of memory")
}

// TestApplyOfUnchangedSchedulesReadsNoTopic: fifty instances declare ten thousand schedules.
func TestApplyOfUnchangedSchedulesReadsNoTopic(t *testing.T) {
	t.Parallel()
	client := redistest.Client(t)
	l := newLab(t, client)
	var schedules []periodic.Schedule
	for i := range 10 {
		schedules = append(schedules, periodic.Schedule{ID: fmt.Sprint(i), Topic: "reports", Cron: "0 7 * * 1"})
	}
	_, err := l.p.Apply(t.Context(), "shop", 1, schedules)
	require.NoError(t, err)
	client.AddHook(&onTicks{do: func(func() error) error { return errors.New("a topic is read") }})
	applied, err := l.p.Apply(t.Context(), "shop", 1, schedules)
	require.NoError(t, err)
	assert.Equal(t, periodic.Applied{Unchanged: 10}, applied)
}
