package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// TestLostReplies loses the replies to a tenth of all script calls. The leases are longer than the
// test, so a batch that is only delivered again after its lease counts as stuck.
func TestLostReplies(t *testing.T) {
	s := newScene(t)
	var scripts, lost atomic.Int64
	proxy := redistest.NewProxy(t, s.addr, func(_ int, command []string) string {
		if !strings.HasPrefix(strings.ToLower(command[0]), "eval") {
			return ""
		}
		scripts.Add(1)
		if rand.IntN(10) > 0 {
			return ""
		}
		lost.Add(1)
		if rand.IntN(10) == 0 { // rarer, because each costs the client its read timeout
			return redistest.Silent
		}
		return redistest.Cut
	})
	client := func() *redis.Client {
		c := redis.NewClient(&redis.Options{Addr: proxy, ReadTimeout: time.Second})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	var stops []func()
	for range 4 {
		stops = append(stops, s.inProcess(s.job(func(j *job) {
			j.Addr, j.Lease, j.MaxInFlight = proxy, 10*time.Minute, 5
			j.FailFirst, j.Poison = 2, "m-3-"
		}), client()))
	}
	var publishing sync.WaitGroup
	publishers, count := 20, size(200, 5000)
	shared := client()
	for n := range publishers {
		publishing.Go(func() {
			j := s.job(func(j *job) {
				j.Publish, j.Name, j.Count, j.Timeout = true, fmt.Sprintf("m-%d-", n), count/publishers, 2*time.Minute
				j.Async = n%2 == 1
			})
			assert.NoError(t, j.run(t.Context(), shared, s.history.Add))
		})
	}
	publishing.Wait()
	s.drained()
	for _, stop := range stops {
		stop()
	}
	report := s.judge("g")
	assert.Equal(t, count, report.Published[OK], "none fails, none is unknown")
	s.attemptsAreWhole()
	t.Logf("lost %d of %d replies", lost.Load(), scripts.Load())
	assert.Greater(t, lost.Load(), scripts.Load()/20)
}

// attemptsAreWhole asserts that each counted delivery was seen by a handler.
func (s *scene) attemptsAreWhole() {
	s.T.Helper()
	attempts := map[string][]int{}
	for _, e := range s.history.Events() {
		if e.Kind == Delivered {
			attempts[e.ID] = append(attempts[e.ID], e.Attempt)
		}
	}
	for id, seen := range attempts {
		slices.Sort(seen)
		for i, attempt := range seen {
			require.Equal(s.T, i+1, attempt, "deliveries of %s: %v", id, seen)
		}
	}
}

// TestScriptFlush flushes the script cache repeatedly.
func TestScriptFlush(t *testing.T) {
	s := newScene(t)
	var log errorLog
	var stops []func()
	for range 2 {
		stops = append(stops, s.inProcess(s.job(func(j *job) {
			j.Lease, j.MaxInFlight, j.logger = 30*time.Second, 5, &log
			j.FailFirst, j.Poison = 1, "m-1"
		}), s.dial()))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(size(3, 60))*time.Second)
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() {
		assert.NoError(t, s.job(func(j *job) {
			j.Publish, j.Name, j.Every = true, "m", time.Millisecond
		}).run(ctx, s.dial(), s.history.Add))
	})
	flushes := 0
	for ; ctx.Err() == nil; flushes++ {
		require.NoError(t, s.Client.ScriptFlush(context.WithoutCancel(ctx)).Err())
		<-time.After(50 * time.Millisecond)
	}
	running.Wait()
	s.drained()
	for _, stop := range stops {
		stop()
	}
	report := s.judge("g")
	assert.Zero(t, report.Published[Failed]+report.Published[Unknown], "no error reaches the user")
	assert.Empty(t, log.lines(), "no error reaches the user")
	t.Logf("%d flushes", flushes)
}

// errorLog records logged errors and their times.
type errorLog struct {
	watermill.NopLogger
	mu     sync.Mutex
	errors []string
	times  []time.Time
}

func (l *errorLog) Error(msg string, err error, _ watermill.LogFields) {
	if strings.HasPrefix(msg, "Warning: ") { // this Redis has no persistence, on purpose
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errors = append(l.errors, fmt.Sprintf("%s: %v", msg, err))
	l.times = append(l.times, time.Now())
}

func (l *errorLog) With(watermill.LogFields) watermill.LoggerAdapter { return l }

func (l *errorLog) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.errors)
}

// TestNoMemory makes Redis run out of memory: publishing fails, but the backlog is handled.
func TestNoMemory(t *testing.T) {
	onlyInFull(t)
	s := newScene(t, "--maxmemory-policy", "noeviction")
	const count = 20_000
	publish := s.job(func(j *job) { j.Publish, j.Name, j.Count, j.Batch, j.Delay = true, "m", count, 100, time.Second })
	require.NoError(t, publish.run(t.Context(), s.dial(), s.history.Add))
	require.NoError(t, s.Client.ConfigSet(t.Context(), "maxmemory", "1").Err())

	refused := s.job(func(j *job) { j.Publish, j.Name, j.Count, j.logger = true, "refused", 10, nil })
	require.NoError(t, refused.run(t.Context(), s.dial(), s.history.Add))
	stop := s.inProcess(s.job(func(j *job) {
		j.MaxInFlight, j.FailFirst, j.Poison = 10, 1, "m-1"
	}), s.dial())
	// Without memory, the group cannot be registered, either.
	require.NoError(t, s.Client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	s.until("the group is registered", quiet, func() bool { return s.Client.SCard(t.Context(), s.Key("groups")).Val() == 1 })
	require.NoError(t, s.Client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	s.drained()
	stop()
	report := s.judge("g")
	assert.Equal(t, 10, report.Published[Failed], "certainly not stored")
	assert.Equal(t, count, report.Published[OK])
}
