package chaos

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// clock is Redis's clock, which differs from the host's, to show which clock the library uses.
// These cases run on miniredis, because libfaketime, which could change the clock of redis-server,
// clashes with its allocator.
type clock struct {
	mu     sync.Mutex
	offset time.Duration // guarded by mu
	last   time.Time     // guarded by mu; the last reading
	stood  time.Duration // guarded by mu; the longest time between two readings
}

func (c *clock) set(offset time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset = offset
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if !c.last.IsZero() {
		c.stood = max(c.stood, now.Sub(c.last))
	}
	c.last = now
	return now.Add(c.offset)
}

// stalledFor returns for how long the clock of miniredis may not have been set, because no
// processor was free, and so how early a message may be by the hosts' clock.
func (c *clock) stalledFor() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stood
}

func newSceneWithClock(t *testing.T) (*scene, *clock) {
	t.Helper()
	server := miniredis.RunT(t)
	c := &clock{}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		ticker := time.NewTicker(200 * time.Microsecond)
		defer ticker.Stop()
		for ctx.Err() == nil {
			server.SetTime(c.now())
			select {
			case <-ticker.C:
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return newSceneAt(t, server.Addr()), c
}

// TestHostsFiveMinutesOff sets Redis's clock five minutes off the clock of publishers and
// consumers. The history uses the hosts' time, in which durations must be right.
func TestHostsFiveMinutesOff(t *testing.T) {
	onlyInFull(t)
	for name, offset := range map[string]time.Duration{"ahead": 5 * time.Minute, "behind": -5 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			s, clock := newSceneWithClock(t)
			clock.set(offset)
			<-time.After(10 * time.Millisecond)
			now := s.Client.Time(t.Context()).Val()
			require.InDelta(t, offset, time.Until(now), float64(time.Second), "the clock is not set")

			lease := time.Second // less than the clocks differ by
			stop := s.inProcess(s.job(func(j *job) { j.Lease, j.MaxInFlight = lease, 10 }), s.dial())
			for i, d := range []time.Duration{1500 * time.Millisecond, 250 * time.Millisecond, 37 * time.Millisecond} {
				publish := s.job(func(j *job) {
					j.Publish, j.Name, j.Count, j.Batch, j.Delay = true, string(rune('a'+i)), 2000, 10, d
				})
				require.NoError(t, publish.run(t.Context(), s.dial(), s.history.Add))
			}
			s.drained()
			stop()
			report := s.history.Check([]string{"g"}, s.bodies(), nil)
			t.Log(report, "lateness", s.lateness("", 0), "to", s.lateness("", 0.99), "clock stood still for", clock.stalledFor())
			assert.GreaterOrEqual(t, s.lateness("", 0), -clock.stalledFor()-time.Millisecond)
			report.Early, report.Resurrected = nil, nil // these compare Redis's time with the hosts'
			assert.Empty(t, report.Failures())
			assert.Zero(t, report.Redelivered)
			assert.Less(t, s.lateness("", 1), time.Minute, "a delay by the hosts' clock would be wrong by five minutes")
		})
	}
}

// TestRedisClockStepped steps Redis's clock back and forth. Messages may be late or early by the
// size of the steps, but are never lost.
func TestRedisClockStepped(t *testing.T) {
	onlyInFull(t)
	const most = 3 * time.Second
	s, clock := newSceneWithClock(t)
	stop := s.inProcess(s.job(func(j *job) { j.Lease, j.MaxInFlight = time.Second, 10 }), s.dial())
	published := make(chan error, 1)
	count := 3000
	go func() {
		j := s.job(func(j *job) {
			j.Publish, j.Name, j.Count, j.Every, j.Delay = true, "m", count, 10*time.Millisecond, 500*time.Millisecond
		})
		published <- j.run(t.Context(), s.dial(), s.history.Add)
	}()
	for s.history.Count(Published) < count {
		clock.set(time.Duration(rand.Int64N(int64(most))) - most/2)
		<-time.After(200 * time.Millisecond)
	}
	require.NoError(t, <-published)
	clock.set(0)
	s.drained()
	stop()
	report := s.history.Check([]string{"g"}, s.bodies(), nil)
	t.Log(report, "early:", len(report.Early), "late p100:", s.lateness("", 1), "p0:", s.lateness("", 0))
	report.Early, report.Resurrected = nil, nil
	assert.Empty(t, report.Failures())
	assert.Greater(t, s.lateness("", 0), -most-2*clock.stalledFor(), "early by the steps at most")
	assert.Less(t, s.lateness("", 1), time.Minute, "late by the steps and the load of the machine")
}
