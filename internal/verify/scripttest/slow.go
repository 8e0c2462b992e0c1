package scripttest

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// mostInScript is twice as long as a script may keep Redis 7.0 from others, which is 10 ms: memory is slower on some machines,
// which slowness does not tell. Newer servers, and the others, take up to half as long again for the same script.
const mostInScript = 20 * time.Millisecond

// NotSlow measures scripts. Each case prepares a new topic and returns the call to measure.
// Other programs may take the processor from Redis in the middle of a script, so a script counts with the time that Redis has
// used of the processor, or with the time that has passed if that is less, and of several tries the best one counts. A
// processor that is slow for a while has more time. A single body of more than a mebibyte may
// take longer.
func NotSlow(t *testing.T, cases map[string]func(t *testing.T, server *redistest.Server) (*Scene, func())) {
	t.Helper()
	server := redistest.New(t, "--slowlog-log-slower-than", "0", "--slowlog-max-len", "100000", "--save", "",
		"--busy-reply-threshold", "120000") // a slow machine takes long to fill a topic
	most := mostInScript
	if info, _ := redistest.Command(t, server.Client(t), "INFO", "server").(string); !strings.Contains(info, "\nredis_version:7.0.") {
		most = most * 3 / 2
	}
	for name, prepare := range cases {
		t.Run(name, func(t *testing.T) {
			const tries, patience = 24, 2 * time.Minute
			var best []time.Duration
			start := time.Now()
			for try := 0; try == 0 || slices.Max(best) > most && (try < tries || time.Since(start) < patience); try++ {
				r, call := prepare(t, server)
				redistest.Command(t, r.Client, "SLOWLOG", "RESET")
				m := &meter{server: server.Client(t)}
				r.Client.AddHook(m)
				call()
				best = better(best, r.scripts(m))
				redistest.Command(t, r.Client, "FLUSHALL") // this server is the test's own
			}
			assert.LessOrEqual(t, slices.Max(best), most, "of %v", best)
		})
	}
}

// meter is a hook that measures what calls of scripts use of the processor.
type meter struct {
	server *redis.Client
	calls  []used
}

// used is what Redis has used of the processor for some scripts that went out together.
type used struct {
	scripts int
	time    time.Duration
}

func (m *meter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m *meter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return m.measure(ctx, []redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

func (m *meter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return m.measure(ctx, cmds, func() error { return next(ctx, cmds) })
	}
}

func (m *meter) measure(ctx context.Context, cmds []redis.Cmder, call func() error) error {
	scripts := 0
	for _, cmd := range cmds {
		if strings.HasPrefix(cmd.Name(), "eval") {
			scripts++
		}
	}
	if scripts == 0 {
		return call()
	}
	before := processorTime(ctx, m.server)
	err := call()
	m.calls = append(m.calls, used{scripts, processorTime(ctx, m.server) - before})
	return err
}

// processorTime is how long Redis's main thread has had the processor; 0 if the server does not say so.
func processorTime(ctx context.Context, server *redis.Client) (total time.Duration) {
	for line := range strings.Lines(server.Info(ctx, "cpu").Val()) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_sys_main_thread" || name == "used_cpu_user_main_thread" {
			seconds, _ := strconv.ParseFloat(value, 64)
			total += time.Duration(seconds * float64(time.Second))
		}
	}
	return total
}

// better is the shorter time of each script, unless other ones ran.
func better(best, last []time.Duration) []time.Duration {
	if len(best) != len(last) {
		return last
	}
	for i := range best {
		best[i] = min(best[i], last[i])
	}
	return best
}

// slowness is how many times as long as a millisecond 5,000 calls take within a script now, at
// least 1. They take 0.95 ms on an idle processor of the kind that the limit is meant for.
func (s *Scene) slowness() float64 {
	s.T.Helper()
	const script = "for _ = 1, 5000 do redis.call('ZSCORE', KEYS[1], '') end"
	m := &meter{server: s.Client}
	best := time.Hour
	for range 3 {
		start := time.Now()
		err := m.measure(s.Ctx(), []redis.Cmder{redis.NewCmd(s.Ctx(), "eval")}, func() error {
			return s.Client.Eval(s.Ctx(), script, []string{"none"}).Err()
		})
		require.ErrorIs(s.T, err, redis.Nil)
		best = min(best, shorter(m.calls[len(m.calls)-1].time, time.Since(start)))
	}
	return max(1, float64(best)/float64(time.Millisecond))
}

// shorter is the shorter of two times, unless the server does not say how long it had the processor.
func shorter(processor, passed time.Duration) time.Duration {
	if processor <= 0 {
		return passed
	}
	return min(processor, passed)
}

// scripts returns how long each script took since the slow log began, in their order, on a
// processor that is not slow.
func (s *Scene) scripts(m *meter) (took []time.Duration) {
	s.T.Helper()
	calls := m.calls
	entries, err := s.Client.SlowLogGet(s.Ctx(), -1).Result()
	require.NoError(s.T, err)
	slices.Reverse(entries) // the slow log begins with the last one
	slowness := s.slowness()
	entries = slices.DeleteFunc(entries, func(e redis.SlowLog) bool { return !strings.HasPrefix(e.Args[0], "eval") })
	for len(entries) > 0 {
		together := len(entries)
		used := time.Duration(0)
		if len(calls) > 0 {
			together, used, calls = min(together, calls[0].scripts), calls[0].time, calls[1:]
		}
		passed := time.Duration(0)
		for _, entry := range entries[:together] {
			passed += entry.Duration
		}
		for _, entry := range entries[:together] { // of the time that scripts have used together, each has its share
			share := float64(entry.Duration) / float64(max(passed, 1))
			took = append(took, time.Duration(share*float64(shorter(used, passed))/slowness))
		}
		entries = entries[together:]
	}
	require.NotEmpty(s.T, took)
	return took
}
