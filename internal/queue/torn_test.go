package queue

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/scripttest"
)

// TestAnAppendOnlyFileTornInAScriptLosesNothing although Redis may run the first part of
// a script twice. Redis 7.0 cuts a torn file off after the last whole command, so the
// commands of the torn script stay in it, behind a MULTI that never ends. The restart
// after that ignores them, as it should; the next one does not.
func TestAnAppendOnlyFileTornInAScriptLosesNothing(t *testing.T) {
	for name, others := range map[string][]string{"one group": nil, "two groups": {"h"}} {
		t.Run(name, func(t *testing.T) {
			server := redistest.New(t, redistest.Durable...)
			r := newSceneOn(t, server)
			g := r.group("g")
			for _, other := range others {
				r.group(other)
			}
			ids := []string{"1", "2", "3", "4", "5", "6"}
			for _, id := range ids {
				r.push(due(id))
			}
			request := r.request("c", 3)
			require.Len(t, r.claimWith(g, request), 3)
			tearAppendOnlyFile(t, r, server)
			require.Len(t, r.claimWith(g, request), 3, "the claim is not in the file")
			ack(t, g, "1", "2", "3")
			scripttest.Restart(t, server)

			assert.Equal(t, []string{"4#1", "5#1", "6#1"}, r.claim(g, "d", 10))
			for _, other := range others {
				assert.Len(t, r.claim(r.group(other), "e", 10), len(ids))
			}
		})
	}
}

// tearAppendOnlyFile kills Redis and cuts off the end of the last EXEC in its file.
func tearAppendOnlyFile(t *testing.T, r *scene, server *redistest.Server) {
	t.Helper()
	dir := r.Client.ConfigGet(t.Context(), "dir").Val()["dir"]
	require.NoError(t, server.Down())
	files, err := filepath.Glob(filepath.Join(dir, "appendonlydir", "*.incr.aof"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	content, err := os.ReadFile(files[0])
	require.NoError(t, err)
	require.Contains(t, string(content[len(content)-6:]), "EXEC")
	require.NoError(t, os.Truncate(files[0], int64(len(content)-3)))
	server.Up()
	require.NoError(t, server.Wait())
}

// TestATornClaimLosesNothingAndGivesNoDeliveryToTwoConsumers answers the first consumer's claim only
// after another has claimed, and after the restart that repeats the torn part; or never.
func TestATornClaimLosesNothingAndGivesNoDeliveryToTwoConsumers(t *testing.T) {
	situations := map[string]func(r *scene){
		"one group": func(r *scene) { r.push(due("a"), due("b")) },
		"two groups": func(r *scene) {
			r.group("h")
			r.push(due("a"), due("b"))
		},
		"claimed before": func(r *scene) {
			r.push(due("a"), due("b"))
			g := r.partition.Group("g")
			require.Len(r.T, r.claim(g, "x", 2), 2)
			nack(r.T, g, Nack{Delivery: Delivery{"a", "1"}})
			r.Expire(g.Name(), "b")
		},
		"one to bury": func(r *scene) {
			r.push(due("a"), due("b"))
			require.NoError(r.T, r.Client.HDel(r.Ctx(), r.partition.Key(script.Messages, ""), "a").Err())
		},
	}
	for name, situation := range situations {
		var request Request
		var delivered []string
		arrange := func(r *scene) {
			g := r.group("g")
			situation(r)
			request = r.request("c", 10)
			delivered = r.claimWith(g, request)
			require.NotEmpty(r.T, delivered)
		}
		tornEverywhere(t, name, arrange, func(r *scene) {
			g := r.partition.Group("g")
			others := r.claim(g, "d", 10)
			require.NotEmpty(r.T, others)
			r.Reload()
			for _, delivery := range r.claimWith(g, request) {
				assert.NotContains(r.T, others, delivery)
			}
			for _, delivery := range others {
				ack(r.T, g, delivery)
			}
		})
		tornEverywhere(t, name+", sent again first", arrange, func(r *scene) {
			g := r.partition.Group("g")
			r.Reload()
			first := r.claimWith(g, request)
			for _, delivery := range r.claim(g, "d", 10) {
				assert.NotContains(r.T, first, delivery)
			}
		})
		tornEverywhere(t, name+", and its consumer is gone", arrange, func(r *scene) {
			r.Reload()
			for _, group := range r.Client.SMembers(r.Ctx(), r.partition.Key(script.Groups, "")).Val() {
				assert.Subset(r.T, r.drain(r.partition.Group(group)), r.ids(delivered), "group %s", group)
			}
			for field := range r.State() {
				assert.Contains(r.T, field, "groups ", "only the groups are left")
			}
		})
	}
}

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
						ack(r.T, g, delivery)
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

// both gives a message to two groups; a consumer of each holds it.
func (r *scene) both() (g, h *Group) {
	r.T.Helper()
	g, h = r.group("g"), r.group("h")
	r.push(due("a"))
	require.Equal(r.T, []string{"a#1"}, r.claim(g, "c", 1))
	require.Equal(r.T, []string{"a#1"}, r.claim(h, "e", 1))
	return g, h
}

// hStillGetsIt checks that the group h, which still needs the message, gets it again.
func (r *scene) hStillGetsIt() {
	r.T.Helper()
	h := r.partition.Group("h")
	nack(r.T, h, Nack{Delivery: Delivery{"a", "1"}})
	claims, err := h.Claim(r.Ctx(), r.request("e", 1))
	require.NoError(r.T, err)
	require.Empty(r.T, claims.Buried)
	require.Len(r.T, claims.Messages, 1)
	assert.Equal(r.T, "body a", string(claims.Messages[0].Body))
	ack(r.T, h, deliveries(claims)...)
}

func TestATornAckCountsForItsOwnGroupOnly(t *testing.T) {
	arrange := func(r *scene) {
		g, _ := r.both()
		ack(r.T, g, "a")
	}
	for _, when := range []string{"before", "after"} {
		tornEverywhere(t, "ack, sent again "+when+" the restart,", arrange, func(r *scene) {
			if when == "after" {
				r.Reload()
			}
			require.NoError(r.T, errOf(r.partition.Group("g").Ack(r.Ctx(), done("a")))) // again, since it got no answer
			r.Reload()
			r.hStillGetsIt()
			assert.Equal(r.T, map[string]string{"groups g": "member", "groups h": "member"}, r.State())
		})
	}
}

// TestATornAckRepeatsNoFence when its consumer dies and another gets the message.
func TestATornAckRepeatsNoFence(t *testing.T) {
	arrange := func(r *scene) {
		g, _ := r.both()
		r.Expire(g.Name(), "a")
		require.Equal(r.T, []string{"a#2/0/1"}, r.claim(g, "c", 1))
		ack(r.T, g, "a#2/0/1")
	}
	tornEverywhere(t, "ack", arrange, func(r *scene) {
		r.Reload()
		g := r.partition.Group("g")
		r.Expire(g.Name(), "a")
		for _, delivery := range r.claim(g, "d", 1) {
			assert.Equal(r.T, "a#3/0/2", delivery)
		}
		r.drain(g)
		r.hStillGetsIt()
	})
}

// TestATornBurialByAPersonLosesNothing: a repeated call finishes it.
func TestATornBurialByAPersonLosesNothing(t *testing.T) {
	bury := func(r *scene) {
		left, err := r.partition.Group("g").BuryAny(r.Ctx(), "by anna", []string{"a"})
		require.NoError(r.T, err)
		require.Empty(r.T, left)
	}
	arrange := func(r *scene) {
		g, _ := r.both()
		nack(r.T, g, Nack{Delivery: Delivery{"a", "1"}})
		bury(r)
	}
	tornEverywhere(t, "burial", arrange, func(r *scene) {
		r.Reload()
		bury(r)
		state := r.State()
		assert.Equal(r.T, "by anna", state["reasons:g a"])
		assert.Empty(r.T, state["queue:g a"]+state["unack:g a"])
		r.drain(r.partition.Group("g"))
		r.hStillGetsIt()
	})
}

// TestAMessageThatATornScriptBringsBackCountsForItsOwnGroupOnly: the consumer dies,
// another handles the message, and then a restart brings it back.
func TestAMessageThatATornScriptBringsBackCountsForItsOwnGroupOnly(t *testing.T) {
	d := Delivery{"a", "1"}
	for name, settle := range map[string]func(r *scene, g *Group){
		"nack":      func(r *scene, g *Group) { nack(r.T, g, Nack{Delivery: d, Metadata: []byte("changed")}) },
		"deferral":  func(r *scene, g *Group) { nack(r.T, g, Nack{Delivery: d, Metadata: []byte("changed"), Deferred: true}) },
		"last nack": func(r *scene, g *Group) { _, _, _ = g.Nack(r.Ctx(), 1, []Nack{{Delivery: d}}) },
		"release":   func(r *scene, g *Group) { _, _ = g.Release(r.Ctx(), []Release{{d, time.UnixMilli(1), 0}}) },
		"bury":      func(r *scene, g *Group) { _, _ = g.Bury(r.Ctx(), []Burial{{d, "bad"}}) },
	} {
		arrange := func(r *scene) {
			g, _ := r.both()
			settle(r, g)
		}
		tornEverywhere(t, name, arrange, func(r *scene) {
			g := r.partition.Group("g")
			r.Expire(g.Name(), "a")
			require.Equal(r.T, []string{"a#2/0/1"}, r.claim(g, "d", 1))
			ack(r.T, g, "a#2/0/1")
			r.Reload()
			r.drain(g)
			r.hStillGetsIt()
			for _, kind := range []string{"messages a", "refs a", "queue:g a", "unack:g a", "dead:g a"} {
				assert.NotContains(r.T, r.State(), kind)
			}
		})
	}
}

// drain acks all that a group has, dead letters included, and returns the ids of what it has got.
func (r *scene) drain(g *Group) (got []string) {
	r.T.Helper()
	for range 3 {
		p := r.partition.Names
		_, err := Requeue(r.Ctx(), g, append(r.Client.ZRange(r.Ctx(), p.Key(script.DeadOf, g.name), 0, -1).Val(), "none"), ever)
		require.NoError(r.T, err)
		for _, id := range r.Client.ZRange(r.Ctx(), p.Key(script.UnackOf, g.name), 0, -1).Val() {
			r.Expire(g.Name(), id)
		}
		for _, delivery := range r.claim(g, "drain", 100) {
			ack(r.T, g, delivery)
			id, _, _ := strings.Cut(delivery, "#")
			got = append(got, id)
		}
	}
	_, err := Discard(r.Ctx(), g, append(r.Client.ZRange(r.Ctx(), r.partition.Key(script.DeadOf, g.name), 0, -1).Val(), "none"), ever)
	require.NoError(r.T, err)
	return got
}

// TestATornCancelHoldsNoKeyAndNoWindow: a repeated call finishes it; without one, either the message
// is delivered or its key can be taken again.
func TestATornCancelHoldsNoKeyAndNoWindow(t *testing.T) {
	id, next := keyed(1, "k"), keyed(2, "k")
	for _, window := range []time.Duration{0, time.Minute} {
		var call func() []any
		arrange := func(r *scene) {
			require.NoError(r.T, errOf(r.pushFor(window, 1, RejectDuplicates, []Message{after(id, 60)})))
			call = r.keyedCall(cancelScript, 1, time.Minute)
			require.Equal(r.T, []any{"cancelled", id, "scheduled"}, call())
		}
		tornEverywhere(t, fmt.Sprint("cancel with a window of ", window), arrange, func(r *scene) {
			r.Reload()
			state := r.State()
			if _, whole := state["messages "+id]; whole {
				assert.Contains(r.T, state, "scheduled "+id)
			} else {
				require.ErrorIs(r.T, errOf(r.partition.Reschedule(r.Ctx(), "k", 0)), ErrNotFound)
				assert.Empty(r.T, r.pushWindow(2, RejectDuplicates, []Message{after(next, 60)}))
				require.NoError(r.T, errOf(r.partition.Cancel(r.Ctx(), "k")))
			}
			assert.Equal(r.T, []any{"cancelled", id, "scheduled"}, call())
			assert.Empty(r.T, r.State())
		})
	}
}

// TestATornPushTakesNoKeyWithoutItsMessage, so sending it again, or publishing the message
// anew, loses nothing.
func TestATornPushTakesNoKeyWithoutItsMessage(t *testing.T) {
	id := keyed(1, "k")
	push := func(r *scene, publisher, id string) int {
		r.T.Helper()
		rejected, err := r.partition.Push(r.Ctx(), Batch{
			Publisher: publisher, Number: 1, Duplicates: RejectDuplicates, Window: time.Minute, Calls: [][]Message{{due(id)}},
		})
		require.NoError(r.T, err)
		return len(rejected)
	}
	arrange := func(r *scene) {
		r.group("g")
		require.Zero(r.T, push(r, "p", id))
	}
	for _, when := range []string{"before", "after"} {
		tornEverywhere(t, "push, sent again "+when+" the restart,", arrange, func(r *scene) {
			if when == "after" {
				r.Reload()
			}
			require.Zero(r.T, push(r, "p", id), "it is not its own duplicate")
			r.Reload()
			assert.Equal(r.T, map[string]string{
				"groups g": "member", "scheduled " + id: "now+0s", "messages " + id: "body " + id, "keys k": id, "dedup k": "now+60s",
			}, r.State())
		})
	}
	last := keyed(2, "k")
	replace := func(r *scene) {
		require.Empty(r.T, r.pushBatch(1, ReplaceDuplicates, []Message{after(id, 60)}, []Message{after(last, 60)}))
	}
	tornEverywhere(t, "push of one key twice, sent again after the restart,", replace, func(r *scene) {
		r.Reload()
		replace(r)
		assert.Equal(r.T, map[string]string{"scheduled " + last: "now+60s", "messages " + last: "body " + last, "keys k": last}, r.State())
	})
	tornEverywhere(t, "push of a publisher that is gone", arrange, func(r *scene) {
		r.Reload()
		next := keyed(2, "k")
		refused := push(r, "q", next) > 0
		g := r.partition.Group("g")
		claims, err := g.Claim(r.Ctx(), r.request("c", 10))
		require.NoError(r.T, err)
		require.NotEmpty(r.T, claims.Messages, "refused: %v", refused)
	})
}
