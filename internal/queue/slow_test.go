package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

const mebibyte = 1 << 20

func TestNoScriptKeepsRedisBusy(t *testing.T) { notSlow(t, slowCases) }

// slowCases prepare a topic with the group g and return the calls to measure.
var slowCases = map[string]func(r *scene, g *Group) func(){
	"check whether any of 1,000 consumers is alive": func(r *scene, g *Group) func() {
		r.BusyConsumers(1000)
		require.NoError(r.T, r.Client.HSet(r.Ctx(), r.partition.Key(script.Settings, ""), "expiry:g", "1 2 0").Err())
		return func() {
			alive, err := g.RunForTexts(r.Ctx(), retireScript, []any{"g", "idle"})
			require.NoError(r.T, err)
			require.Len(r.T, alive, 11)
			alive, err = g.RunForTexts(r.Ctx(), expireScript, []any{"g", mayEnd, g.partition.Channel()})
			require.NoError(r.T, err)
			require.Equal(r.T, []string{"alive"}, alive)
		}
	},
	"replace 500 ticks by 500 others": func(r *scene, _ *Group) func() {
		list := make([]int, 500)
		for i := range list {
			list[i] = 1000 + i
		}
		revision := r.revisionOf(0)
		r.tick(revision, "", "c", list...)
		for i := range list {
			list[i] += 1000
		}
		return func() { require.True(r.T, r.tick(revision+1, "", "d", list...).Stored) }
	},
	"push 500 keys with a window, and drop windows": func(r *scene, _ *Group) func() {
		fill := "for i = 1, 50000 do redis.call('ZADD', KEYS[1], 1000 + i, i) end return 1"
		require.NoError(r.T, r.Client.Eval(r.Ctx(), fill, []string{r.partition.Key(script.Dedup, "")}).Err())
		var call []Message
		for i := range 500 {
			call = append(call, due(keyed(i, fmt.Sprint("key ", i))))
		}
		return func() { require.Empty(r.T, r.pushWindow(1, RejectDuplicates, call)) }
	},
	"use and sweep large keys": func(r *scene, g *Group) func() {
		r.crowd(g.name)
		return func() {
			r.use(g)
			for range 3 {
				_, _, err := g.sweep(r.Ctx())
				require.NoError(r.T, err)
			}
		}
	},
	"claim 1,000 small messages": func(r *scene, g *Group) func() {
		r.Store(r.partition.Key(script.Scheduled, ""), 1000, 200)
		return func() { require.Len(r.T, r.claim(g, "c", 1000), 1000) }
	},
	"claim bodies of 64 KiB": func(r *scene, g *Group) func() {
		r.Store(r.partition.Key(script.Scheduled, ""), 100, 64<<10)
		return func() { require.Len(r.T, r.claim(g, "c", 100), 16) }
	},
	"claim before bodies of 4 MiB": func(r *scene, g *Group) func() {
		r.Store(r.partition.Key(script.Scheduled, ""), 20, 4*mebibyte)
		r.push(due("0"), due("1"))
		require.NoError(r.T, r.Client.ZAdd(r.Ctx(), r.partition.Key(script.Scheduled, ""), z(0, "0"), z(0, "1")).Err())
		return func() { require.Len(r.T, r.claim(g, "c", 1000), 2) }
	},
	"claim among 100 groups": func(r *scene, g *Group) func() {
		r.RegisterGroups(99)
		r.claim(g, "c", 1)
		return func() { require.Empty(r.T, r.claim(g, "c", 1)) }
	},
	"fan out to 100 groups": func(r *scene, g *Group) func() {
		r.RegisterGroups(99)
		r.Store(r.partition.Key(script.Scheduled, ""), 500, 100)
		return func() { require.Len(r.T, r.claim(g, "c", 500), 40) }
	},
	"ack bodies of 1 MiB": func(r *scene, g *Group) func() {
		ids := r.Store(r.partition.Key(script.UnackOf, "g"), 200, mebibyte)
		var done []Done
		for _, id := range ids {
			done = append(done, Done{Delivery{id, "1"}, mebibyte})
		}
		return func() {
			acked, err := g.Ack(r.Ctx(), done)
			require.NoError(r.T, err)
			require.Empty(r.T, acked.Stale)
			require.Zero(r.T, r.Client.Exists(r.Ctx(), r.partition.Key(script.Messages, "")).Val())
		}
	},
	"ack 1,000 for one of 100 groups": func(r *scene, g *Group) func() {
		ids := r.Store(r.partition.Key(script.UnackOf, "g"), 1000, 100)
		r.DifferentRefs(ids, 100)
		return func() {
			acked, err := g.Ack(r.Ctx(), done(ids...))
			require.NoError(r.T, err)
			require.Empty(r.T, acked.Stale)
			require.Zero(r.T, r.Client.Exists(r.Ctx(), r.partition.Key(script.UnackOf, "g")).Val())
		}
	},
	"nack with metadata": func(r *scene, g *Group) func() {
		var nacks []Nack
		for _, id := range r.Store(r.partition.Key(script.UnackOf, "g"), 1000, 100) {
			nacks = append(nacks, Nack{Delivery: Delivery{id, "1"}, Delay: time.Second, Metadata: make([]byte, 4<<10)})
		}
		return func() { nack(r.T, g, nacks...) }
	},
	"extend, release, bury and requeue 1,000": func(r *scene, g *Group) func() {
		ids := r.Store(r.partition.Key(script.UnackOf, "g"), 1000, 100)
		var extensions []Held
		var releases []Release
		var burials []Burial
		for i, id := range ids {
			extensions = append(extensions, handedOut(id, "1"))
			if i%2 == 0 {
				releases = append(releases, Release{Delivery{id, "1"}, r.Now(), 0})
			} else {
				burials = append(burials, Burial{Delivery{id, "1"}, "bad"})
			}
		}
		return func() {
			_, err := g.Extend(r.Ctx(), Heartbeat{Lease: lease}, extensions)
			require.NoError(r.T, err)
			_, err = g.Release(r.Ctx(), releases)
			require.NoError(r.T, err)
			_, err = g.Bury(r.Ctx(), burials)
			require.NoError(r.T, err)
			_, err = Requeue(r.Ctx(), g, ids, ever)
			require.NoError(r.T, err)
		}
	},
	"discard dead messages of 1 MiB": func(r *scene, g *Group) func() {
		ids := r.Store(r.partition.Key(script.DeadOf, "g"), 200, mebibyte)
		return func() {
			missing, err := Discard(r.Ctx(), g, ids, ever)
			require.NoError(r.T, err)
			require.Empty(r.T, missing)
			require.Zero(r.T, r.Client.Exists(r.Ctx(), r.partition.Key(script.Messages, "")).Val())
		}
	},
	"reschedule and cancel messages that 100 groups retry": func(r *scene, _ *Group) func() {
		r.Retried(false)
		return func() {
			_, err := r.change(rescheduleBy("key", "k", "in", 1000))
			require.NoError(r.T, err)
			status, err := r.change(cancelBy("key", "k"))
			require.NoError(r.T, err)
			require.Len(r.T, status.Groups, 100)
			require.Zero(r.T, r.Client.Exists(r.Ctx(), r.partition.Key(script.Messages, ""), r.partition.Key(script.QueueOf, "g1")).Val())
		}
	},
	"cancel messages that are dead for 50 groups and queued for 50": func(r *scene, _ *Group) func() {
		r.Retried(true)
		return func() {
			_, err := r.change(cancelBy("key", "k"))
			require.NoError(r.T, err)
			require.NotZero(r.T, r.Client.Exists(r.Ctx(), r.partition.Key(script.Messages, "")).Val())
		}
	},
	"queue 500 messages behind 20,000 of their key": func(r *scene, g *Group) func() {
		r.blocked("a", 20_000)
		for i := range 500 {
			r.push(due(ordered(fmt.Sprintf("z%03d", i), "a")))
		}
		return func() {
			require.Empty(r.T, r.claim(g, "c", 1000))
			require.Equal(r.T, int64(20_500), r.Client.ZCard(r.Ctx(), r.partition.Key(script.BlockedOf, "g")).Val())
		}
	},
	"ack 1,000 messages and pass on 1,000 turns": func(r *scene, g *Group) func() {
		var ids []string
		for i := range 1000 {
			ids = append(ids, r.blocked(fmt.Sprintf("key %03d", i), 1))
		}
		return func() {
			acked, err := g.Ack(r.Ctx(), done(ids...))
			require.NoError(r.T, err)
			require.Empty(r.T, acked.Stale)
			require.Zero(r.T, r.Client.Exists(r.Ctx(), r.partition.Key(script.BlockedOf, "g")).Val())
		}
	},
	"claim 1,000 messages of different keys while 20,000 wait": func(r *scene, g *Group) func() {
		r.blocked("a", 20_000)
		for i := range 10 {
			var list []Message
			for j := range 100 {
				list = append(list, due(ordered(fmt.Sprintf("z%d%02d", i, j), fmt.Sprintf("key %d%02d", i, j))))
			}
			r.push(list...)
		}
		return func() { require.Len(r.T, r.claim(g, "c", 1000), 1000) }
	},
	"relay 1,000 small messages":  relayAll(1000, 100, 1),
	"relay bodies of 512 KiB":     relayAll(40, mebibyte/2, 1),
	"relay for one of 100 groups": relayAll(500, 100, 100),
}

// blocked gives an ordering key a message in delivery to the group g, whose receipt it returns, and messages in line behind it.
func (r *scene) blocked(key string, count int) (held string) {
	r.T.Helper()
	const source = `
		local key, count = ARGV[1], tonumber(ARGV[2])
		local line = #key .. ',' .. key
		for i = 0, count do
			local id = string.format('%026d=%d,%s', i, #key, key)
			redis.call('HSET', KEYS[1], id, 'body')
			if i == 0 then
				redis.call('ZADD', KEYS[3], ARGV[3], id)
				redis.call('HSET', KEYS[4], line, id)
			else
				redis.call('ZADD', KEYS[2], string.format('%.0f', 4503599627370496 + i), id)
				redis.call('ZADD', KEYS[5], 0, line .. string.format('%016d', i) .. id)
			end
		end
		return string.format('%026d=%d,%s', 0, #key, key)`
	p := r.partition
	keys := []string{
		p.Key(script.Messages, ""), p.Key(script.QueueOf, "g"), p.Key(script.UnackOf, "g"), p.Key(script.TurnsOf, "g"), p.Key(script.BlockedOf, "g"),
	}
	held, err := r.Client.Eval(r.Ctx(), source, keys, key, count, r.Now().Add(lease).UnixMilli()).Text()
	require.NoError(r.T, err)
	return held
}

// relayAll moves messages to a stream, with bodies of a size, that this many groups need.
func relayAll(count, size, groups int) func(r *scene, g *Group) func() {
	return func(r *scene, g *Group) func() {
		ids := r.Store(r.partition.Key(script.UnackOf, "g"), count, size)
		if groups > 1 {
			r.DifferentRefs(ids, groups)
		}
		var entries []Entry
		for _, id := range ids {
			entries = append(entries, Entry{
				Delivery: Delivery{id, "1"}, Size: size,
				Values: []any{"uuid", id, "metadata", make([]byte, 100), "payload", make([]byte, size)},
			})
		}
		return func() {
			require.Empty(r.T, r.relay(g, r.stream(), entries...))
			require.EqualValues(r.T, count, r.Client.XLen(r.Ctx(), r.stream().Key).Val())
			require.Zero(r.T, r.Client.Exists(r.Ctx(), r.partition.Key(script.UnackOf, "g")).Val())
		}
	}
}
