package periodic_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

// TestATickThatIsCancelledTakesNoOtherWithIt: a schedule is replaced after a person has cancelled its last pending tick.
func TestATickThatIsCancelledTakesNoOtherWithIt(t *testing.T) {
	client, prefix := redistest.Client(t), prefixOf(t)
	p := newPeriodic(t, client, prefix)
	s := periodic.Schedule{ID: "hourly", Topic: "hours", Cron: "@hourly", StoreAtLeast: 4}
	require.NoError(t, p.Set(t.Context(), s))
	a, err := admin.New(admin.Config{Client: client, Prefix: prefix})
	require.NoError(t, err)
	pending := pendingIDs(t, a, "hours")
	require.Len(t, pending, 4)
	_, err = a.Cancel(t.Context(), "hours", admin.ByID(pending[3]), nil)
	require.NoError(t, err)
	s.Payload = []byte("changed")
	require.NoError(t, p.Set(t.Context(), s))
	status, err := p.Find(t.Context(), "hourly", 3)
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

// TestATickThatIsPutOffComesWhenItsScheduleChanges although its nominal time is over.
func TestATickThatIsPutOffComesWhenItsScheduleChanges(t *testing.T) {
	l := newLab(t, redistest.Client(t))
	s := periodic.Schedule{
		ID: "report", Topic: "reports", Cron: "@every 2s", StoreAtLeast: 1, StoreAhead: time.Second, Payload: []byte("old"),
	}
	require.NoError(t, l.p.Set(t.Context(), s))
	scheduled := l.client.ZRangeWithScores(t.Context(), l.key("scheduled"), 0, -1).Val()
	require.Len(t, scheduled, 1)
	nominal, later := time.UnixMilli(int64(scheduled[0].Score)), scheduled[0]
	later.Score += float64(time.Hour.Milliseconds())
	require.NoError(t, l.client.ZAdd(t.Context(), l.key("scheduled"), later).Err())
	require.Eventually(t, func() bool { return time.Now().After(nominal) }, time.Minute, time.Millisecond)
	s.Payload = []byte("new")
	require.NoError(t, l.p.Set(t.Context(), s))
	due := l.client.ZCount(t.Context(), l.key("scheduled"), "-inf", fmt.Sprint(time.Now().UnixMilli())).Val()
	assert.EqualValues(t, 1, due, "of the tick for %s, or a later one", nominal)
	assert.Equal(t, []string{"new", "new"}, slices.Collect(maps.Values(l.pending())))
}

// pendingIDs are those of the messages of a topic that are not due.
func pendingIDs(t *testing.T, a *admin.Admin, topic string) (ids []string) {
	t.Helper()
	for e, err := range a.All(t.Context(), topic, admin.Query{In: admin.Scheduled}) {
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

// TestAProcessWithoutTheFunctionIsQuiet while no other process has it.
func TestAProcessWithoutTheFunctionIsQuiet(t *testing.T) {
	client, prefix := redistest.Client(t), prefixOf(t)
	declares := newPeriodic(t, client, prefix)
	require.NoError(t, declares.Set(t.Context(), periodic.Schedule{
		ID: "made", Topic: "made", Cron: "@every 1s", StoreAtLeast: 1, StoreAhead: time.Second,
		Make: func(periodic.Tick) (*message.Message, error) { return nil, errors.New("never made") },
	}))
	counted, calls := redistest.Client(t), &counter{}
	counted.AddHook(calls)
	p, err := periodic.New(periodic.Config{Client: counted, Prefix: prefix}, nil)
	require.NoError(t, err)
	// The schedule is due once its lease, or the time to try it again, is over.
	require.NoError(t, client.ZAdd(t.Context(), "{"+prefix+":periodic}:upcoming", redis.Z{Score: 1, Member: "made"}).Err())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	require.NoError(t, p.Run(ctx))
	assert.Less(t, calls.calls.Load(), int64(20), "calls in two seconds")
}
