package periodic_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

// TestCancellingATickKeepsTheOtherTicks: a schedule is replaced after an operator has cancelled its last pending tick.
func TestCancellingATickKeepsTheOtherTicks(t *testing.T) {
	t.Parallel()
	client, prefix := redistest.Client(t), prefixOf(t)
	p := newPeriodic(t, client, prefix)
	s := periodic.Schedule{ID: "hourly", Topic: "hours", Cron: "@hourly", MinTicksAhead: 4}
	require.NoError(t, p.Set(t.Context(), s))
	a, err := admin.New(admin.Config{Client: client, Prefix: prefix})
	require.NoError(t, err)
	pending := pendingIDs(t, a, "hours")
	require.Len(t, pending, 4)
	_, err = a.Cancel(t.Context(), "hours", admin.ByID(pending[3]), nil)
	require.NoError(t, err)
	s.Payload = []byte("changed")
	require.NoError(t, p.Set(t.Context(), s))
	status, err := p.Get(t.Context(), "hourly", 3)
	require.NoError(t, err)
	tick := firstPending(t, a, "hours")
	assert.True(t, status.Next[0].Equal(tick.Nominal), "the next tick is for %s, want %s", tick.Nominal, status.Next[0])
}

// firstPending is the first tick of a topic that is not due.
func firstPending(t *testing.T, a *admin.Admin, topic string) periodic.Tick {
	t.Helper()
	ids := pendingIDs(t, a, topic)
	require.NotEmpty(t, ids)
	first, err := a.Message(t.Context(), topic, admin.Ref{ID: ids[0]})
	require.NoError(t, err)
	tick, is := periodic.TickOf(first.Content.Message)
	require.True(t, is)
	return tick
}

// TestAPostponedTickIsDueWhenItsScheduleChanges although its nominal time is over.
func TestAPostponedTickIsDueWhenItsScheduleChanges(t *testing.T) {
	t.Parallel()
	l := newLab(t, redistest.Client(t))
	s := periodic.Schedule{
		ID: "report", Topic: "reports", Cron: "@every 2s", MinTicksAhead: 1, StoreAhead: time.Second, Payload: []byte("old"),
	}
	require.NoError(t, l.p.Set(t.Context(), s))
	scheduled := l.client.ZRangeWithScores(t.Context(), l.key("scheduled"), 0, -1).Val()
	require.NotEmpty(t, scheduled) // two if the first is due within StoreAhead
	nominal, later := time.UnixMilli(int64(scheduled[0].Score)), scheduled[0]
	later.Score += float64(time.Hour.Milliseconds())
	require.NoError(t, l.client.ZAdd(t.Context(), l.key("scheduled"), later).Err())
	require.Eventually(t, func() bool { return time.Now().After(nominal) }, time.Minute, time.Millisecond)
	s.Payload = []byte("new")
	require.NoError(t, l.p.Set(t.Context(), s))
	due := l.client.ZCount(t.Context(), l.key("scheduled"), "-inf", fmt.Sprint(time.Now().UnixMilli())).Val()
	assert.Positive(t, due, "of the tick for %s, or a later one", nominal)
	for id, body := range l.client.HGetAll(t.Context(), l.key("messages")).Val() { // two may be due by now
		msg, err := redisdelay.DefaultMarshaler{}.Unmarshal(s.Topic, []byte(body))
		require.NoError(t, err)
		assert.Equal(t, "new", string(msg.Payload), id)
	}
}

// pendingIDs are those of the messages of a topic that are not due.
func pendingIDs(t *testing.T, a *admin.Admin, topic string) (ids []string) {
	t.Helper()
	for e, err := range a.AllEntries(t.Context(), topic, admin.Query{Set: admin.Scheduled}) {
		require.NoError(t, err)
		ids = append(ids, e.ID)
	}
	return ids
}

// counter counts calls to Redis.
type counter struct {
	redistest.Hook
	calls atomic.Int64
}

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.calls.Add(1)
		return next(ctx, cmd)
	}
}
