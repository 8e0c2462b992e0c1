package queue

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

const mebibyte = 1 << 20

// mostInScript is how long a script may keep Redis from others.
const mostInScript = 10 * time.Millisecond

func TestNoScriptTakesOverTenMilliseconds(t *testing.T) { notSlow(t, slowCases) }

// notSlow reads Redis's slow log. Other programs may take the processor from Redis in the middle
// of a script, so each case has several tries, and of each of its scripts the best one counts. A
// processor that is slow for a while has more time. A single body of more than a mebibyte may
// take longer.
func notSlow(t *testing.T, cases map[string]func(r *scene, g *Group) func()) {
	t.Helper()
	server := redistest.New(t, "--slowlog-log-slower-than", "0", "--slowlog-max-len", "100000", "--save", "")
	for name, prepare := range cases {
		t.Run(name, func(t *testing.T) {
			const tries = 24
			var best []time.Duration
			for try := 0; try < tries && (try == 0 || slices.Max(best) > mostInScript); try++ {
				r := newSceneOn(t, server)
				call := prepare(r, r.group("g"))
				redistest.Command(t, r.client, "SLOWLOG", "RESET")
				call()
				best = better(best, r.scripts())
				redistest.Command(t, r.client, "FLUSHALL") // this server is the test's own
			}
			assert.LessOrEqual(t, slices.Max(best), mostInScript, "of %v", best)
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
func (r *scene) slowness() float64 {
	r.t.Helper()
	const script = "local from = redis.call('TIME') for _ = 1, 5000 do redis.call('ZSCORE', KEYS[1], '') end " +
		"local to = redis.call('TIME') return (to[1] - from[1]) * 1000000 + to[2] - from[2]"
	best := 1e9
	for range 3 {
		us, err := r.client.Eval(r.ctx(), script, []string{"none"}).Int()
		require.NoError(r.t, err)
		best = min(best, float64(us))
	}
	return max(1, best/1000)
}

// scripts returns how long each script took since the slow log began, in their order, on a
// processor that is not slow.
func (r *scene) scripts() (took []time.Duration) {
	r.t.Helper()
	entries, err := r.client.SlowLogGet(r.ctx(), -1).Result()
	require.NoError(r.t, err)
	slowness := r.slowness()
	for _, entry := range entries {
		if strings.HasPrefix(entry.Args[0], "eval") {
			took = append(took, time.Duration(float64(entry.Duration)/slowness))
		}
	}
	slices.Reverse(took) // the slow log begins with the last one
	require.NotEmpty(r.t, took)
	return took
}

// slowCases prepare a topic with the group g and return the calls to measure.
var slowCases = map[string]func(r *scene, g *Group) func(){
	"push 500 keys with a window, and drop windows": func(r *scene, _ *Group) func() {
		fill := "for i = 1, 50000 do redis.call('ZADD', KEYS[1], 1000 + i, i) end return 1"
		require.NoError(r.t, r.client.Eval(r.ctx(), fill, []string{r.partition.names.key(taken)}).Err())
		var call []Message
		for i := range 500 {
			call = append(call, due(keyed(i, fmt.Sprint("key ", i))))
		}
		return func() { require.Empty(r.t, r.pushWindow(1, RejectDuplicates, call)) }
	},
	"use what is large, and sweep it": func(r *scene, g *Group) func() {
		r.crowd(g.name)
		return func() {
			r.use(g)
			for range 3 {
				require.NoError(r.t, g.sweep(r.ctx(), time.Now()))
			}
		}
	},
	"claim 1,000 small messages": func(r *scene, g *Group) func() {
		r.store(r.partition.names.key(scheduled), 1000, 200)
		return func() { require.Len(r.t, r.claim(g, "c", 1000), 1000) }
	},
	"claim bodies of 64 KiB": func(r *scene, g *Group) func() {
		r.store(r.partition.names.key(scheduled), 100, 64<<10)
		return func() { require.Len(r.t, r.claim(g, "c", 100), 16) }
	},
	"claim before bodies of 4 MiB": func(r *scene, g *Group) func() {
		r.store(r.partition.names.key(scheduled), 20, 4*mebibyte)
		r.push(due("0"), due("1"))
		require.NoError(r.t, r.client.ZAdd(r.ctx(), r.partition.names.key(scheduled), z(0, "0"), z(0, "1")).Err())
		return func() { require.Len(r.t, r.claim(g, "c", 1000), 2) }
	},
	"claim among 1,000 groups": func(r *scene, g *Group) func() {
		r.groups(999)
		r.claim(g, "c", 1)
		return func() { require.Empty(r.t, r.claim(g, "c", 1)) }
	},
	"fan out to 32 groups":    fanOut(31),
	"fan out to 100 groups":   fanOut(99),
	"fan out to 1,000 groups": fanOut(999),
	"ack bodies of 1 MiB": func(r *scene, g *Group) func() {
		ids := r.store(r.partition.names.keyOf(unackOf, "g"), 200, mebibyte)
		var done []Done
		for _, id := range ids {
			done = append(done, Done{id, mebibyte})
		}
		return func() {
			acked, err := g.Ack(r.ctx(), done)
			require.NoError(r.t, err)
			require.Empty(r.t, acked.Missing)
			require.Zero(r.t, r.client.Exists(r.ctx(), r.partition.names.key(messages)).Val())
		}
	},
	"ack one of 1,000 groups": func(r *scene, g *Group) func() {
		ids := r.store(r.partition.names.keyOf(unackOf, "g"), 500, 100)
		r.differentRefs(ids, 1000)
		return func() {
			acked, err := g.Ack(r.ctx(), done(ids...))
			require.NoError(r.t, err)
			require.Empty(r.t, acked.Missing)
			require.Zero(r.t, r.client.Exists(r.ctx(), r.partition.names.keyOf(unackOf, "g")).Val())
		}
	},
	"nack with metadata": func(r *scene, g *Group) func() {
		var nacks []Nack
		for _, id := range r.store(r.partition.names.keyOf(unackOf, "g"), 1000, 100) {
			nacks = append(nacks, Nack{Delivery: Delivery{id, "1"}, Delay: time.Second, Metadata: make([]byte, 4<<10)})
		}
		return func() { nack(r.t, g, nacks...) }
	},
	"extend, release, bury and requeue 1,000": func(r *scene, g *Group) func() {
		ids := r.store(r.partition.names.keyOf(unackOf, "g"), 1000, 100)
		var extensions []Held
		var releases []Release
		var burials []Burial
		for i, id := range ids {
			extensions = append(extensions, handedOut(id, "1"))
			if i%2 == 0 {
				releases = append(releases, Release{Delivery{id, "1"}, r.now(), 0})
			} else {
				burials = append(burials, Burial{Delivery{id, "1"}, "bad"})
			}
		}
		return func() {
			_, err := g.Extend(r.ctx(), Heartbeat{Lease: lease}, extensions)
			require.NoError(r.t, err)
			_, err = g.Release(r.ctx(), releases)
			require.NoError(r.t, err)
			_, err = g.Bury(r.ctx(), burials)
			require.NoError(r.t, err)
			_, err = g.Requeue(r.ctx(), ever, ids)
			require.NoError(r.t, err)
		}
	},
	"discard dead letters of 1 MiB": func(r *scene, g *Group) func() {
		ids := r.store(r.partition.names.keyOf(deadOf, "g"), 200, mebibyte)
		return func() {
			missing, err := g.Discard(r.ctx(), ever, ids)
			require.NoError(r.t, err)
			require.Empty(r.t, missing)
			require.Zero(r.t, r.client.Exists(r.ctx(), r.partition.names.key(messages)).Val())
		}
	},
	"reschedule and cancel what 1,000 groups retry": func(r *scene, _ *Group) func() {
		retried(r, false)
		return func() {
			_, err := r.partition.Reschedule(r.ctx(), "k", time.Second)
			require.NoError(r.t, err)
			standing, err := r.partition.Cancel(r.ctx(), "k")
			require.NoError(r.t, err)
			require.Len(r.t, standing.Groups, 1000)
			require.Zero(r.t, r.client.Exists(r.ctx(), r.partition.names.key(messages), r.partition.names.keyOf(queueOf, "g1")).Val())
		}
	},
	"cancel what is dead for 500 groups and waits for 500": func(r *scene, _ *Group) func() {
		retried(r, true)
		return func() {
			_, err := r.partition.Cancel(r.ctx(), "k")
			require.NoError(r.t, err)
			require.NotZero(r.t, r.client.Exists(r.ctx(), r.partition.names.key(messages)).Val())
		}
	},
	"reschedule and cancel among 1,000 groups": func(r *scene, g *Group) func() {
		r.groups(999)
		r.push(due(keyed(1, "k")))
		require.Len(r.t, r.claim(g, "c", 1), 1)
		return func() {
			require.NoError(r.t, errOf(r.partition.Reschedule(r.ctx(), "k", time.Second)))
			require.NoError(r.t, errOf(r.partition.Cancel(r.ctx(), "k")))
			require.Zero(r.t, r.client.Exists(r.ctx(), r.partition.names.key(messages), r.partition.names.keyOf(queueOf, "g1")).Val())
		}
	},
}

// retried is a message with the key k that 1,000 groups have in retry, or half of them as a
// dead letter.
func retried(r *scene, half bool) {
	r.t.Helper()
	r.groups(999)
	id, p := keyed(1, "k"), r.partition.names
	r.push(after(id, 60))
	names := []string{`"g"`}
	pipe := r.client.Pipeline()
	pipe.ZRem(r.ctx(), p.key(scheduled), id)
	for n := range 999 {
		g := fmt.Sprint("g", n+1)
		names = append(names, fmt.Sprintf("%q", g))
		pipe.HSet(r.ctx(), p.keyOf(attemptsOf, g), id, "7/3/3")
		if half && n%2 == 0 {
			pipe.ZAdd(r.ctx(), p.keyOf(deadOf, g), z(1, id))
			continue
		}
		pipe.ZAdd(r.ctx(), p.keyOf(queueOf, g), z(1, id))
		pipe.HSet(r.ctx(), p.keyOf(changedOf, g), id, "changed")
	}
	pipe.ZAdd(r.ctx(), p.keyOf(unackOf, "g"), z(1, id))
	pipe.HSet(r.ctx(), p.key(refs), id, "["+strings.Join(names, ",")+"]")
	_, err := pipe.Exec(r.ctx())
	require.NoError(r.t, err)
}

func fanOut(others int) func(r *scene, g *Group) func() {
	return func(r *scene, g *Group) func() {
		r.groups(others)
		r.store(r.partition.names.key(scheduled), 500, 100)
		want := max(1, 4000/(others+1))
		return func() { require.Len(r.t, r.claim(g, "c", 500), min(500, want)) }
	}
}

// groups registers more groups.
func (r *scene) groups(more int) {
	r.t.Helper()
	names := make([]any, more)
	for i := range names {
		names[i] = fmt.Sprint("g", i+1)
	}
	require.NoError(r.t, r.client.SAdd(r.ctx(), r.partition.names.key(groups), names...).Err())
}

// store puts messages directly into a set.
func (r *scene) store(set string, count, size int) (ids []string) {
	r.t.Helper()
	const source = `
		local ids, body = {}, string.rep('x', tonumber(ARGV[2]))
		for i = 1, tonumber(ARGV[1]) do
			ids[i] = string.format('%026d', i)
			redis.call('HSET', KEYS[1], ids[i], body)
			redis.call('ZADD', KEYS[2], i, ids[i])
		end
		return ids`
	ids, err := r.client.Eval(r.ctx(), source, []string{r.partition.names.key(messages), set}, count, size).StringSlice()
	require.NoError(r.t, err)
	return ids
}

// differentRefs makes messages wait for that many groups, including g. Each message has a
// different list.
func (r *scene) differentRefs(ids []string, groups int) {
	r.t.Helper()
	for n, id := range ids {
		names := make([]string, groups)
		for i := range names {
			names[i] = fmt.Sprintf("%q", fmt.Sprint("group ", (i+n)%groups))
		}
		names[groups/2] = `"g"`
		require.NoError(r.t, r.client.HSet(r.ctx(), r.partition.names.key(refs), id, "["+strings.Join(names, ",")+"]").Err())
	}
}
