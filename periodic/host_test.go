package periodic_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

// TestHostsWithWrongClocksStoreEachTickOnce: one is an hour slow, and one an hour fast. Each runs the schedule for a while, and no other
// process does.
func TestHostsWithWrongClocksStoreEachTickOnce(t *testing.T) {
	t.Parallel()
	const each = 2 // more than are stored ahead
	server, prefix := redistest.Shared(t), prefixOf(t)
	ticks := subscribe(t, server.Client(t), prefix, "beats")
	var got []periodic.Tick
	for i, wrong := range []time.Duration{-time.Hour, time.Hour, -time.Hour} {
		for deadline := time.Now().Add(20 * time.Second); len(got) < (i+1)*each; {
			require.True(t, time.Now().Before(deadline), "ticks are lost with a clock that is wrong by %s: %v", wrong, got)
			showing := time.Now().Add(wrong)
			synctest.Test(t, func(t *testing.T) { runOnHost(t, showing, server, prefix) })
			select {
			case tick := <-ticks:
				assert.False(t, time.Now().Before(tick.Nominal), "%s is early", tick)
				got = append(got, tick)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	for i, tick := range got[1:] {
		assert.Equal(t, got[i].Nominal.Add(time.Second), tick.Nominal)
		assert.Zero(t, tick.Missed)
	}
}

// runOnHost runs a schedule for each second for a moment on a host whose clock, that of a bubble, shows a time. The clock
// stands still while Redis is at work.
func runOnHost(t *testing.T, showing time.Time, server *redistest.Server, prefix string) {
	t.Helper()
	time.Sleep(time.Until(showing.Round(0))) //nolint:forbidigo // sets the bubble's clock
	p := newPeriodic(t, server.Client(t), prefix)
	_, err := p.Apply(t.Context(), "hearts", 1, []periodic.Schedule{{
		ID: "beat", Topic: "beats", Cron: "@every 1s", Zone: "Europe/Berlin", MinTicksAhead: 1, StoreAhead: time.Second,
		CatchUp: time.Minute, // a machine that stands still makes ticks late
	}})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
	defer cancel()
	require.NoError(t, p.Run(ctx))
}
