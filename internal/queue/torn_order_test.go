package queue

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// TestATornScriptStopsNoOrderingKey: each message is delivered, and nothing is left of turns and lanes.
func TestATornScriptStopsNoOrderingKey(t *testing.T) {
	held := func(r *scene) *Group {
		g := r.partition.Group("g")
		require.Equal(r.T, tokens("1", a1), r.claim(g, "c", 10))
		return g
	}
	for name, arrange := range map[string]func(r *scene){
		"claim":          func(r *scene) { held(r) },
		"claim in line":  func(r *scene) { held(r); r.push(due(ordered("a4", "a"))); r.claim(r.partition.Group("g"), "d", 10) },
		"ack":            func(r *scene) { ack(r.T, held(r), a1) },
		"buried by nack": func(r *scene) { nack(r.T, held(r), Nack{Delivery: Delivery{a1, "1"}, Reason: "bad"}) },
		"bury in line": func(r *scene) {
			_, err := held(r).BuryAny(r.Ctx(), "by anna", []string{a2})
			require.NoError(r.T, err)
		},
		"cancel": func(r *scene) {
			held(r)
			_, err := r.partition.CancelID(r.Ctx(), a1)
			require.NoError(r.T, err)
		},
		"cancel in line": func(r *scene) {
			held(r)
			_, err := r.partition.CancelID(r.Ctx(), a2)
			require.NoError(r.T, err)
		},
		"reschedule in line": func(r *scene) {
			held(r)
			_, err := r.partition.RescheduleID(r.Ctx(), a2, r.Now().UnixMilli()+60_000)
			require.NoError(r.T, err)
		},
	} {
		for _, groups := range [][]string{{"g"}, {"g", "h"}} {
			t.Run(name+" of "+groups[len(groups)-1], func(t *testing.T) {
				t.Parallel() // each has a server of its own, and mostly waits for it to start again
				begin := func(r *scene) {
					for _, name := range groups {
						r.group(name)
					}
					r.push(due(a1), due(a2), due(a3))
					arrange(r)
				}
				tornEverywhere(t, "all", begin, func(r *scene) {
					r.Reload()
					r.goOn(groups)
				})
				tornEverywhere(t, "all, and the others go on,", begin, func(r *scene) {
					g := r.partition.Group("g")
					r.Expire("g", a1)
					for _, delivery := range r.claim(g, "d", 10) {
						ack(r.T, g, delivery[:len(a1)])
					}
					r.Reload()
					r.goOn(groups)
				})
			})
		}
	}
}

// goOn handles all that groups have. No ordering key may stop.
func (r *scene) goOn(groups []string) {
	r.T.Helper()
	for range 8 { // each ends a message of a key at least
		for _, name := range groups {
			for _, z := range r.Client.ZRangeWithScores(r.Ctx(), r.partition.Key(script.QueueOf, name), 0, -1).Val() {
				if z.Score < script.InLine {
					require.NoError(r.T, r.Client.ZAddXX(r.Ctx(), r.partition.Key(script.QueueOf, name), redis.Z{Score: 1000, Member: z.Member}).Err())
				}
			}
			r.drain(r.partition.Group(name))
		}
	}
	state := r.State()
	for _, name := range groups {
		assert.Equal(r.T, "member", state["groups "+name])
		delete(state, "groups "+name)
	}
	for field := range state { // bookkeeping of an end that was half done
		kind, _, _ := strings.Cut(field, " ")
		if kind == "refs" || kind == "reasons:g" || kind == "attempts:g" {
			delete(state, field)
		}
	}
	assert.Empty(r.T, state)
}
