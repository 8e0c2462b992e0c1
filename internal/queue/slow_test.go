package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

const mebibyte = 1 << 20

func TestNoScriptTakesOverTenMilliseconds(t *testing.T) { notSlow(t, slowCases) }

// slowCases prepare a topic with the group g and return the calls to measure.
var slowCases = map[string]func(r *scene, g *Group) func(){
	"look whether any of 1,000 consumers is alive": func(r *scene, g *Group) func() {
		r.BusyConsumers(1000)
		require.NoError(r.T, r.Client.HSet(r.Ctx(), r.partition.Key(script.Control, ""), "expiry:g", "1 2 0").Err())
		return func() {
			alive, err := g.RunForTexts(r.Ctx(), retireScript, []any{"g", "idle"})
			require.NoError(r.T, err)
			require.Len(r.T, alive, 11)
			alive, err = g.RunForTexts(r.Ctx(), expireScript, []any{"g", mayEnd})
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
	"bury 1,000": func(r *scene, g *Group) func() {
		ids := r.Store(r.partition.Key(script.QueueOf, "g"), 1000, 100)
		return func() {
			left, err := g.BuryAny(r.Ctx(), "bad", ids)
			require.NoError(r.T, err)
			require.Empty(r.T, left)
		}
	},
	"push 500 keys with a window, and drop windows": func(r *scene, _ *Group) func() {
		fill := "for i = 1, 50000 do redis.call('ZADD', KEYS[1], 1000 + i, i) end return 1"
		require.NoError(r.T, r.Client.Eval(r.Ctx(), fill, []string{r.partition.Key(script.Taken, "")}).Err())
		var call []Message
		for i := range 500 {
			call = append(call, due(keyed(i, fmt.Sprint("key ", i))))
		}
		return func() { require.Empty(r.T, r.pushWindow(1, RejectDuplicates, call)) }
	},
	"use what is large, and sweep it": func(r *scene, g *Group) func() {
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
	"claim among 1,000 groups": func(r *scene, g *Group) func() {
		r.RegisterGroups(999)
		r.claim(g, "c", 1)
		return func() { require.Empty(r.T, r.claim(g, "c", 1)) }
	},
	"fan out to 32 groups":    fanOut(31),
	"fan out to 100 groups":   fanOut(99),
	"fan out to 1,000 groups": fanOut(999),
	"ack bodies of 1 MiB": func(r *scene, g *Group) func() {
		ids := r.Store(r.partition.Key(script.UnackOf, "g"), 200, mebibyte)
		var done []Done
		for _, id := range ids {
			done = append(done, Done{id, mebibyte})
		}
		return func() {
			acked, err := g.Ack(r.Ctx(), done)
			require.NoError(r.T, err)
			require.Empty(r.T, acked.Missing)
			require.Zero(r.T, r.Client.Exists(r.Ctx(), r.partition.Key(script.Messages, "")).Val())
		}
	},
	"ack one of 1,000 groups": func(r *scene, g *Group) func() {
		ids := r.Store(r.partition.Key(script.UnackOf, "g"), 500, 100)
		r.DifferentRefs(ids, 1000)
		return func() {
			acked, err := g.Ack(r.Ctx(), done(ids...))
			require.NoError(r.T, err)
			require.Empty(r.T, acked.Missing)
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
			_, err = Requeue(r.Ctx(), g, ever, ids)
			require.NoError(r.T, err)
		}
	},
	"discard dead letters of 1 MiB": func(r *scene, g *Group) func() {
		ids := r.Store(r.partition.Key(script.DeadOf, "g"), 200, mebibyte)
		return func() {
			missing, err := Discard(r.Ctx(), g, ever, ids)
			require.NoError(r.T, err)
			require.Empty(r.T, missing)
			require.Zero(r.T, r.Client.Exists(r.Ctx(), r.partition.Key(script.Messages, "")).Val())
		}
	},
	"reschedule and cancel what 1,000 groups retry": func(r *scene, _ *Group) func() {
		r.Retried(false)
		return func() {
			_, err := r.partition.Reschedule(r.Ctx(), "k", time.Second)
			require.NoError(r.T, err)
			status, err := r.partition.Cancel(r.Ctx(), "k")
			require.NoError(r.T, err)
			require.Len(r.T, status.Groups, 1000)
			require.Zero(r.T, r.Client.Exists(r.Ctx(), r.partition.Key(script.Messages, ""), r.partition.Key(script.QueueOf, "g1")).Val())
		}
	},
	"cancel what is dead for 500 groups and waits for 500": func(r *scene, _ *Group) func() {
		r.Retried(true)
		return func() {
			_, err := r.partition.Cancel(r.Ctx(), "k")
			require.NoError(r.T, err)
			require.NotZero(r.T, r.Client.Exists(r.Ctx(), r.partition.Key(script.Messages, "")).Val())
		}
	},
	"reschedule and cancel among 1,000 groups": func(r *scene, g *Group) func() {
		r.RegisterGroups(999)
		r.push(due(keyed(1, "k")))
		require.Len(r.T, r.claim(g, "c", 1), 1)
		return func() {
			require.NoError(r.T, errOf(r.partition.Reschedule(r.Ctx(), "k", time.Second)))
			require.NoError(r.T, errOf(r.partition.Cancel(r.Ctx(), "k")))
			require.Zero(r.T, r.Client.Exists(r.Ctx(), r.partition.Key(script.Messages, ""), r.partition.Key(script.QueueOf, "g1")).Val())
		}
	},
}

func fanOut(others int) func(r *scene, g *Group) func() {
	return func(r *scene, g *Group) func() {
		r.RegisterGroups(others)
		r.Store(r.partition.Key(script.Scheduled, ""), 500, 100)
		want := max(1, 4000/(others+1))
		return func() { require.Len(r.T, r.claim(g, "c", 500), min(500, want)) }
	}
}
