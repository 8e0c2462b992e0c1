package periodic_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/observe"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

// TestAnOutageEndsWhenRunReturns: otherwise, an observer such as a gauge of outages would report it forever.
func TestAnOutageEndsWhenRunReturns(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // nobody is there
	defer client.Close()                                           //nolint:errcheck // nothing is open
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan bool, 10)
	p, err := periodic.New(periodic.Config{Client: client, Prefix: prefixOf(t), Observer: observe.Observer{
		OutageBegan: func(observe.OutageBegan) { stop() },
		OutageEnded: func(e observe.OutageEnded) { ended <- e.Stopped },
	}}, nil)
	require.NoError(t, err)
	require.NoError(t, p.Run(ctx))
	require.Len(t, ended, 1)
	assert.True(t, <-ended)
}

// TestAScheduleThatCannotBeStoredIsOneOutage, however many rounds have nothing to do with it. Other schedules begin to fail meanwhile.
func TestAScheduleThatCannotBeStoredIsOneOutage(t *testing.T) {
	t.Parallel()
	l, log := newLab(t, redistest.Client(t)), &fixture.Log{}
	var began, ended, failed, good atomic.Int64
	p, err := periodic.New(periodic.Config{Client: l.client, Prefix: l.prefix, PollInterval: 100 * time.Millisecond, Observer: observe.Observer{
		OutageBegan: func(observe.OutageBegan) { began.Add(1) },
		OutageEnded: func(e observe.OutageEnded) {
			if !e.Stopped {
				ended.Add(1)
			}
		},
		Failed: func(observe.Failed) { failed.Add(1) },
		Ticked: func(e observe.Ticked) {
			if e.Schedule == "good" {
				good.Add(1)
			}
		},
	}}, log)
	require.NoError(t, err)
	require.NoError(t, p.Set(t.Context(), periodic.Schedule{ID: "good", Topic: "good", Cron: "@every 1s", StoreAhead: time.Second}))
	comes := func(what *atomic.Int64) { // once more
		t.Helper()
		before := what.Load()
		require.Eventually(t, func() bool { return what.Load() > before }, time.Minute, 10*time.Millisecond)
	}
	due := func(id string) {
		require.NoError(t, l.client.ZAdd(t.Context(), "{"+l.prefix+":periodic}:upcoming", redis.Z{Member: id, Score: 1}).Err())
	}
	require.NoError(t, l.client.Set(t.Context(), l.key("ticks"), "no hash", 0).Err())
	require.Error(t, l.set("x"))
	run(t, p)
	for range 2 {
		due("report")
		comes(&failed)
		comes(&good)
		comes(&good)
	}
	require.Error(t, l.p.Set(t.Context(), periodic.Schedule{ID: "another", Topic: "reports", Cron: "@daily"}))
	due("another")
	comes(&failed)
	comes(&good)
	assert.EqualValues(t, 1, began.Load())
	assert.Zero(t, ended.Load())
	assert.Equal(t, 1, log.Count(`Could not store the ticks of schedules; trying again: schedule "report"`))
	assert.Equal(t, 1, log.Count(`Could not store the ticks of more schedules; trying again: schedule "another"`))

	require.NoError(t, l.client.Del(t.Context(), l.key("ticks")).Err())
	due("report")
	due("another")
	comes(&ended)
	assert.EqualValues(t, 1, began.Load())
}
