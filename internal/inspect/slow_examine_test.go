package inspect

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

func TestNoScriptOfArrivalsAndLooksTakesOverTenMilliseconds(t *testing.T) { notSlow(t, slowLooks) }

// slowLooks are slowCases for arrivals and for what looks for faults.
var slowLooks = map[string]func(r *scene, g *queue.Group) func(){
	"arrive 500 with keys among old arrivals": func(r *scene, _ *queue.Group) func() {
		fill := "for i = 1, 50000 do redis.call('ZADD', KEYS[1], 1000 + i, i) end return 1"
		require.NoError(r.T, r.Client.Eval(r.Ctx(), fill, []string{r.partition.Key(script.Imported, "")}).Err())
		var list []Arrival
		for i := range 500 {
			list = append(list, Arrival{ID: keyed(i, fmt.Sprint("key ", i)), Body: make([]byte, 2<<10)})
		}
		r.arrive()
		return func() { r.arrive(list...) }
	},
	"look for orphans among 100 groups": func(r *scene, _ *queue.Group) func() {
		r.RegisterGroups(99)
		r.Store(r.partition.Key(script.QueueOf, "g99"), 1000, 100)
		return func() {
			require.NoError(r.T, FindOrphans(r.Ctx(), r.partition, nil, func(_ int, ids []string) { require.Empty(r.T, ids) }))
		}
	},
	"look for orphans among bodies of 1 MiB": func(r *scene, _ *queue.Group) func() {
		r.Store(r.partition.Key(script.Scheduled, ""), 200, mebibyte)
		return func() { require.NoError(r.T, FindOrphans(r.Ctx(), r.partition, nil, func(int, []string) {})) }
	},
	"look for orphans among a few bodies of 1 MiB": func(r *scene, _ *queue.Group) func() {
		r.Store(r.partition.Key(script.Scheduled, ""), 5000, 100)
		for n := range 50 {
			body := make([]byte, mebibyte)
			require.NoError(r.T, r.Client.HSet(r.Ctx(), r.partition.Key(script.Messages, ""), fmt.Sprint("large ", n), body).Err())
		}
		return func() { require.NoError(r.T, FindOrphans(r.Ctx(), r.partition, nil, func(int, []string) {})) }
	},
	"look for ids without a body and for stray keys": func(r *scene, g *queue.Group) func() {
		r.Store(r.partition.Key(script.Scheduled, ""), 10_000, 10)
		require.NoError(r.T, r.Client.Del(r.Ctx(), r.partition.Key(script.Messages, "")).Err())
		for i := range 10 {
			var fields []any
			for n := range 1000 {
				fields = append(fields, fmt.Sprint("key ", i, n), plainID(n))
			}
			require.NoError(r.T, r.Client.HSet(r.Ctx(), r.partition.Key(script.MessageKeys, ""), fields...).Err())
		}
		return func() {
			require.NoError(r.T, FindMisplaced(r.Ctx(), g, InScheduled, func(int, Misplaced) {}))
			require.NoError(r.T, FindStrays(r.Ctx(), r.partition, DropStrays, func(int, []string) {}))
		}
	},
}
