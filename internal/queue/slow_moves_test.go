package queue

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

func TestNoScriptOfAMoveTakesOverTenMilliseconds(t *testing.T) { notSlow(t, slowMoves) }

// slowMoves are slowCases for moves and for what looks for faults.
var slowMoves = map[string]func(r *scene, g *Group) func(){
	"move 1,000 with keys": func(r *scene, _ *Group) func() {
		var call []Message
		var ids []string
		for i := range 1000 {
			call = append(call, after(keyed(i, fmt.Sprint("key ", i)), 60))
			ids = append(ids, call[i].ID)
		}
		r.push(call...)
		return func() {
			none, d := r.partition.Group(""), departure(InScheduled, ids...)
			require.Len(r.t, r.depart(none, d), 1000)
			_, _, err := none.Carry(r.ctx(), d.Batch, ids)
			require.NoError(r.t, err)
			r.endMove(none, d.Batch, false, ids[:500]...)
			r.endMove(none, d.Batch, true, ids[500:]...)
			require.Equal(r.t, int64(500), r.client.HLen(r.ctx(), r.partition.Key(script.Messages, "")).Val())
		}
	},
	"move what one of 1,000 groups has": func(r *scene, g *Group) func() {
		ids := r.store(r.partition.Key(script.DeadOf, "g"), 500, 100)
		r.differentRefs(ids, 1000)
		return func() {
			d := departure(InDead, ids...)
			require.Len(r.t, r.depart(g, d), 500)
			r.endMove(g, d.Batch, true, ids...)
			require.Zero(r.t, r.client.Exists(r.ctx(), r.partition.Key(script.Moving, "")).Val())
		}
	},
	"move messages of 1 MiB": func(r *scene, _ *Group) func() {
		ids := r.store(r.partition.Key(script.Scheduled, ""), 100, mebibyte)
		return func() {
			none, d := r.partition.Group(""), departure(InScheduled, ids...)
			require.Len(r.t, r.depart(none, d), 100)
			_, left, err := none.Carry(r.ctx(), d.Batch, ids)
			require.NoError(r.t, err)
			require.Len(r.t, left, 99)
			r.endMove(none, d.Batch, true, ids...)
		}
	},
	"take over 1,000 and more": func(r *scene, _ *Group) func() {
		ids := r.store(r.partition.Key(script.Scheduled, ""), 1000, 100)
		none := r.partition.Group("")
		require.Len(r.t, r.depart(none, departure(InScheduled, ids...)), 1000)
		return func() {
			_, _, err := r.partition.TakeOver(r.ctx(), "0", NewBatch(), 0, 1<<40)
			require.NoError(r.t, err)
		}
	},
	"arrive 500 with keys among old arrivals": func(r *scene, _ *Group) func() {
		fill := "for i = 1, 50000 do redis.call('ZADD', KEYS[1], 1000 + i, i) end return 1"
		require.NoError(r.t, r.client.Eval(r.ctx(), fill, []string{r.partition.Key(script.Arrived, "")}).Err())
		var list []Arrival
		for i := range 500 {
			list = append(list, Arrival{ID: keyed(i, fmt.Sprint("key ", i)), Body: make([]byte, 2<<10)})
		}
		r.arrive()
		return func() { r.arrive(list...) }
	},
	"look for orphans among 1,000 groups": func(r *scene, _ *Group) func() {
		r.groups(999)
		r.store(r.partition.Key(script.QueueOf, "g999"), 1000, 100)
		return func() {
			require.NoError(r.t, r.partition.Orphans(r.ctx(), nil, func(_ int, ids []string) { require.Empty(r.t, ids) }))
		}
	},
	"look for orphans among bodies of 1 MiB": func(r *scene, _ *Group) func() {
		r.store(r.partition.Key(script.Scheduled, ""), 200, mebibyte)
		return func() { require.NoError(r.t, r.partition.Orphans(r.ctx(), nil, func(int, []string) {})) }
	},
	"look for orphans among a few bodies of 1 MiB": func(r *scene, _ *Group) func() {
		r.store(r.partition.Key(script.Scheduled, ""), 5000, 100)
		for n := range 50 {
			body := make([]byte, mebibyte)
			require.NoError(r.t, r.client.HSet(r.ctx(), r.partition.Key(script.Messages, ""), fmt.Sprint("large ", n), body).Err())
		}
		return func() { require.NoError(r.t, r.partition.Orphans(r.ctx(), nil, func(int, []string) {})) }
	},
	"look for ids without a body and for stray keys": func(r *scene, g *Group) func() {
		r.store(r.partition.Key(script.Scheduled, ""), 10_000, 10)
		require.NoError(r.t, r.client.Del(r.ctx(), r.partition.Key(script.Messages, "")).Err())
		for i := range 10 {
			var fields []any
			for n := range 1000 {
				fields = append(fields, fmt.Sprint("key ", i, n), plainID(n))
			}
			require.NoError(r.t, r.client.HSet(r.ctx(), r.partition.Key(script.MessageKeys, ""), fields...).Err())
		}
		return func() {
			require.NoError(r.t, g.Misplaced(r.ctx(), InScheduled, func(int, Misplaced) {}))
			require.NoError(r.t, r.partition.Strays(r.ctx(), DropStrays, func(int, []string) {}))
		}
	},
}
