package queue

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

func TestNoScriptTakesOverTenMillisecondsWithOrderingKeys(t *testing.T) {
	notSlow(t, map[string]func(r *scene, g *Group) func(){
		"send 500 messages in line behind 100,000": func(r *scene, g *Group) func() {
			r.lane("a", 100_000)
			for i := range 500 {
				r.push(due(ordered(fmt.Sprintf("z%03d", i), "a")))
			}
			return func() {
				require.Empty(r.T, r.claim(g, "c", 1000))
				require.Equal(r.T, int64(100_500), r.Client.ZCard(r.Ctx(), r.partition.Key(script.LanesOf, "g")).Val())
			}
		},
		"ack 1,000 messages and pass on 1,000 turns": func(r *scene, g *Group) func() {
			var ids []string
			for i := range 1000 {
				ids = append(ids, r.lane(fmt.Sprintf("key %03d", i), 1))
			}
			return func() {
				acked, err := g.Ack(r.Ctx(), done(ids...))
				require.NoError(r.T, err)
				require.Empty(r.T, acked.Missing)
				require.Zero(r.T, r.Client.Exists(r.Ctx(), r.partition.Key(script.LanesOf, "g")).Val())
			}
		},
		"claim 1,000 messages of different keys beside 100,000 in line": func(r *scene, g *Group) func() {
			r.lane("a", 100_000)
			for i := range 10 {
				var list []Message
				for j := range 100 {
					list = append(list, due(ordered(fmt.Sprintf("z%d%02d", i, j), fmt.Sprintf("key %d%02d", i, j))))
				}
				r.push(list...)
			}
			return func() { require.Len(r.T, r.claim(g, "c", 1000), 1000) }
		},
	})
}

// lane gives an ordering key a message in delivery to the group g, which it returns, and some in line behind it.
func (r *scene) lane(key string, count int) (held string) {
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
		p.Key(script.Messages, ""), p.Key(script.QueueOf, "g"), p.Key(script.UnackOf, "g"), p.Key(script.TurnsOf, "g"), p.Key(script.LanesOf, "g"),
	}
	held, err := r.Client.Eval(r.Ctx(), source, keys, key, count, r.Now().Add(lease).UnixMilli()).Text()
	require.NoError(r.T, err)
	return held
}
