package scripttest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// mostInScript is how long a script may keep Redis 7.0 from others. Newer servers, and the others, take up to half
// as long again for the same script.
const mostInScript = 10 * time.Millisecond

// NotSlow reads Redis's slow log. Each case prepares a new topic and returns the call to measure.
// Other programs may take the processor from Redis in the middle
// of a script, so each case has several tries, and of each of its scripts the best one counts. A
// processor that is slow for a while has more time. A single body of more than a mebibyte may
// take longer.
func NotSlow(t *testing.T, cases map[string]func(t *testing.T, server *redistest.Server) (*Scene, func())) {
	t.Helper()
	server := redistest.New(t, "--slowlog-log-slower-than", "0", "--slowlog-max-len", "100000", "--save", "")
	most := mostInScript
	if info, _ := redistest.Command(t, server.Client(t), "INFO", "server").(string); !strings.Contains(info, "\nredis_version:7.0.") {
		most = most * 3 / 2
	}
	for name, prepare := range cases {
		t.Run(name, func(t *testing.T) {
			const tries = 24
			var best []time.Duration
			for try := 0; try < tries && (try == 0 || slices.Max(best) > most); try++ {
				r, call := prepare(t, server)
				redistest.Command(t, r.Client, "SLOWLOG", "RESET")
				call()
				best = better(best, r.scripts())
				redistest.Command(t, r.Client, "FLUSHALL") // this server is the test's own
			}
			assert.LessOrEqual(t, slices.Max(best), most, "of %v", best)
		})
	}
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
func (r *Scene) slowness() float64 {
	r.T.Helper()
	const script = "local from = redis.call('TIME') for _ = 1, 5000 do redis.call('ZSCORE', KEYS[1], '') end " +
		"local to = redis.call('TIME') return (to[1] - from[1]) * 1000000 + to[2] - from[2]"
	best := 1e9
	for range 3 {
		us, err := r.Client.Eval(r.Ctx(), script, []string{"none"}).Int()
		require.NoError(r.T, err)
		best = min(best, float64(us))
	}
	return max(1, best/1000)
}

// scripts returns how long each script took since the slow log began, in their order, on a
// processor that is not slow.
func (r *Scene) scripts() (took []time.Duration) {
	r.T.Helper()
	entries, err := r.Client.SlowLogGet(r.Ctx(), -1).Result()
	require.NoError(r.T, err)
	slowness := r.slowness()
	for _, entry := range entries {
		if strings.HasPrefix(entry.Args[0], "eval") {
			took = append(took, time.Duration(float64(entry.Duration)/slowness))
		}
	}
	slices.Reverse(took) // the slow log begins with the last one
	require.NotEmpty(r.T, took)
	return took
}
