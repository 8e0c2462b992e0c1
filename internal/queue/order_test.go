package queue

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// ordered is an id that carries an ordering key.
func ordered(name, key string) string { return fmt.Sprintf("%-26s=%d,%s", name, len(key), key) }

var a1, a2, a3, b1 = ordered("a1", "a"), ordered("a2", "a"), ordered("a3", "a"), ordered("b1", "b")

func tokens(token string, ids ...string) []string {
	list := []string{}
	for _, id := range ids {
		list = append(list, id+"#"+token)
	}
	return list
}

func TestAClaimTakesOneMessageOfAnOrderingKey(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due(a1), due(a2), due(a3), due(b1))

	assert.Equal(t, tokens("1", a1, b1), r.claim(g, "c", 10))
	assert.Equal(t, map[string]string{
		"groups g":      "member",
		"unack:g " + a1: "now+30s", "messages " + a1: "body " + a1,
		"unack:g " + b1: "now+30s", "messages " + b1: "body " + b1,
		"queue:g " + a2: "in line now+0s", "messages " + a2: "body " + a2,
		"queue:g " + a3: "in line now+0s", "messages " + a3: "body " + a3,
		"turns:g 1,a": a1, "turns:g 1,b": b1,
		"blocked:g 1,a " + a2: "0", "blocked:g 1,a " + a3: "0",
	}, r.State())

	claims, err := g.Claim(t.Context(), r.request("d", 10))
	require.NoError(t, err)
	assert.Empty(t, claims.Messages)
	assert.InDelta(t, lease, claims.Next, float64(10*time.Second), "nothing is due while the keys are busy")
}

// TestWhatWaitsInLineHasItsTurnWhateverBytesItsKeysHave: its place has its ordering key and its message key.
func TestWhatWaitsInLineHasItsTurnWhateverBytesItsKeysHave(t *testing.T) {
	for name, id := range map[string]func(name string) string{
		"ordering key with a NUL":     func(name string) string { return ordered(name, "a\x00b") },
		"ordering key like a length":  func(name string) string { return ordered(name, "\x00\x00\x00\x05") },
		"message key with a NUL":      func(name string) string { return ordered(name, "a") + ":x\x00" + name },
		"ordering key of other bytes": func(name string) string { return ordered(name, "\xff1,a=:\r\n ~%") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newScene(t)
			g := r.group("g")
			ids := []string{id("1"), id("2"), id("3")}
			r.push(due(ids[0]), due(ids[1]), due(ids[2]))
			for _, id := range ids {
				require.Equal(t, tokens("1", id), r.claim(g, "c", 10))
				require.Empty(t, r.claim(g, "d", 10), "the key is busy")
				ack(t, g, id)
			}
			assert.Equal(t, map[string]string{"groups g": "member"}, r.State())
		})
	}
}

// TestALostDeliveryWithoutATurnIsFenced: its message goes in line, and whoever had it has it no more once it is claimed again.
func TestALostDeliveryWithoutATurnIsFenced(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due(a1))
	require.Equal(t, tokens("1", a1), r.claim(g, "c", 1))
	require.NoError(t, r.Client.Del(r.Ctx(), r.partition.Key(script.TurnsOf, "g")).Err(), "damage")
	r.push(due(a2))
	require.Equal(t, tokens("1", a2), r.claim(g, "d", 1))
	r.Expire("g", a1)
	require.Empty(t, r.claim(g, "d", 1))
	require.NoError(t, errOf(g.Ack(r.Ctx(), done(a2))))
	assert.Equal(t, tokens("3/0/1", a1), r.claim(g, "d", 1), "the delivery that was lost counts for nothing")
	stale, _, err := g.Nack(r.Ctx(), 0, []Nack{{Delivery: Delivery{ID: a1, Token: "1"}}})
	require.NoError(t, err)
	assert.Equal(t, []string{a1}, stale)
}

// TestATurnPassesOn in each way in which a message ends for its group, and no sooner.
func TestATurnPassesOn(t *testing.T) {
	id := func(id string) Delivery { return Delivery{ID: id, Token: "1"} }
	for name, end := range map[string]func(r *scene, g *Group){
		"ack": func(r *scene, g *Group) {
			acked, err := g.Ack(r.Ctx(), done(a1))
			require.NoError(r.T, err)
			assert.True(r.T, acked.Room, "the consumer claims at once")
		},
		"nack, last delivery": func(r *scene, g *Group) {
			_, buried, err := g.Nack(r.Ctx(), 1, []Nack{{Delivery: id(a1)}})
			require.NoError(r.T, err)
			assert.Len(r.T, buried, 1)
		},
		"nack, buried": func(r *scene, g *Group) {
			_, buried, err := g.Nack(r.Ctx(), 0, []Nack{{Delivery: id(a1), Reason: "bad"}})
			require.NoError(r.T, err)
			assert.Len(r.T, buried, 1)
		},
		"bury": func(r *scene, g *Group) {
			stale, err := g.Bury(r.Ctx(), []Burial{{id(a1), "bad"}})
			require.NoError(r.T, err)
			assert.Empty(r.T, stale)
		},
		"bury, by a person": func(r *scene, g *Group) {
			left, err := g.BuryAny(r.Ctx(), "bad", []string{a1})
			require.NoError(r.T, err)
			assert.Empty(r.T, left)
		},
		"cancel": func(r *scene, _ *Group) {
			_, err := r.partition.CancelID(r.Ctx(), a1)
			require.NoError(r.T, err)
		},
		"reschedule a retry": func(r *scene, g *Group) {
			_, _, err := g.Nack(r.Ctx(), 0, []Nack{{Delivery: id(a1), Delay: 5e9}})
			require.NoError(r.T, err)
			assert.Empty(r.T, r.claim(g, "d", 10), "a retry keeps its turn")
			_, err = r.partition.RescheduleID(r.Ctx(), a1, r.Now().UnixMilli()+60000)
			require.NoError(r.T, err)
		},
		"lost too often": func(r *scene, g *Group) {
			r.Expire("g", a1)
			request := r.request("d", 10)
			request.MaxDeliveries = 1
			r.Client.HSet(r.Ctx(), r.Partition.Key(script.AttemptsOf, "g"), a1, "1/1/0")
			claims, err := g.Claim(r.Ctx(), request)
			require.NoError(r.T, err)
			assert.Len(r.T, claims.Buried, 1)
			assert.Zero(r.T, claims.Next)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newScene(t)
			g := r.group("g")
			r.push(due(a1), due(a2), due(a3), due(b1))
			require.Equal(t, tokens("1", a1, b1), r.claim(g, "c", 10))
			end(r, g)
			assert.Equal(t, a2, r.State()["turns:g 1,a"])
			assert.Equal(t, tokens("1", a2), r.claim(g, "d", 10))
		})
	}
}

// TestAClaimThatBuriesManyPassesAllTheirTurnsOn itself: what heals the turns of some lines after each claim would come
// too late for most.
func TestAClaimThatBuriesManyPassesAllTheirTurnsOn(t *testing.T) {
	for name, halts := range map[string]bool{"that go on": false, "that halt": true} {
		t.Run("keys "+name, func(t *testing.T) {
			const keys = 20
			r := newScene(t)
			g := r.group("g")
			if halts {
				_, err := r.partition.limit(t.Context(), "g", Limits{HaltsKeys: true}, 1, "")
				require.NoError(t, err)
			}
			var firsts, seconds []string
			for n := range keys {
				key := fmt.Sprint("key", n)
				firsts, seconds = append(firsts, ordered("first", key)), append(seconds, ordered("second", key))
				r.push(due(firsts[n]), due(seconds[n]))
			}
			require.Len(t, r.claim(g, "c", 2*keys), keys)
			for _, id := range firsts {
				r.Expire("g", id)
				r.Client.HSet(t.Context(), r.partition.Key(script.AttemptsOf, "g"), id, "1/1/0")
			}
			request := r.request("d", 2*keys)
			request.MaxDeliveries = 1
			claims, err := g.Claim(t.Context(), request)
			require.NoError(t, err)
			require.Len(t, claims.Buried, keys)

			state := r.State()
			for n, second := range seconds {
				waits, owner := state["queue:g "+second], state["turns:g "+script.Traits{OrderingKey: fmt.Sprint("key", n)}.String()[1:]]
				if halts {
					assert.Equal(t, firsts[n], owner)
					assert.Contains(t, waits, "in line ")
					continue
				}
				assert.Equal(t, second, owner)
				assert.NotEmpty(t, waits)
				assert.NotContains(t, waits, "in line ")
			}
		})
	}
}

func TestAMessageThatIsDueWhileAnotherOfItsKeyIsLeasedWaits(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due(a1))
	require.Equal(t, tokens("1", a1), r.claim(g, "c", 10))
	r.push(due(a2))
	assert.Empty(t, r.claim(g, "d", 10))
	assert.Equal(t, a1, r.State()["turns:g 1,a"])
	ack(t, g, a1)
	assert.Equal(t, tokens("1", a2), r.claim(g, "d", 10))
}

func TestACancelEndsNoTurnOfAnotherMessage(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due(a1), due(a2), due(a3))
	require.Equal(t, tokens("1", a1), r.claim(g, "c", 10))
	_, err := r.partition.CancelID(t.Context(), a2)
	require.NoError(t, err)
	assert.Equal(t, a1, r.State()["turns:g 1,a"])
	assert.Empty(t, r.claim(g, "d", 10))
	ack(t, g, a1)
	assert.Equal(t, tokens("1", a3), r.claim(g, "d", 10))
}

// TestACancelEndsNoTurnThatADeadLetterHolds in a group whose keys halt: the cancel leaves dead letters alone.
func TestACancelEndsNoTurnThatADeadLetterHolds(t *testing.T) {
	r := newScene(t)
	halts, other := r.group("g"), r.group("h")
	_, err := r.partition.limit(t.Context(), "g", Limits{HaltsKeys: true}, 1, "")
	require.NoError(t, err)
	r.push(due(a1), due(a2))
	require.Equal(t, tokens("1", a1), r.claim(halts, "c", 10))
	require.Equal(t, tokens("1", a1), r.claim(other, "c", 10))
	nack(t, halts, Nack{Delivery: Delivery{ID: a1, Token: "1"}, Reason: "bad"})
	_, err = r.partition.CancelID(t.Context(), a1)
	require.NoError(t, err)
	assert.Equal(t, a1, r.State()["turns:g 1,a"])
	assert.Empty(t, r.claim(halts, "d", 10), "the letter still halts its key")
	assert.Equal(t, tokens("1", a2), r.claim(other, "d", 10))
}

func TestACancelThatPassesATurnOnWakesItsGroup(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due(a1), due(a2))
	require.Equal(t, tokens("1", a1), r.claim(g, "c", 10))
	next := r.listen(g, "d")
	_, err := r.partition.CancelID(t.Context(), a1)
	require.NoError(t, err)
	assert.Zero(t, next().In, "something is due now")
	assert.Equal(t, tokens("1", a2), r.claim(g, "d", 10))
}

func TestARetryKeepsItsTurn(t *testing.T) {
	for name, fail := range map[string]func(r *scene, g *Group) (token string){
		"nack": func(r *scene, g *Group) string {
			_, _, err := g.Nack(r.Ctx(), 0, []Nack{{Delivery: Delivery{ID: a1, Token: "1"}}})
			require.NoError(r.T, err)
			return "2/1/1"
		},
		"defer": func(r *scene, g *Group) string {
			_, _, err := g.Nack(r.Ctx(), 0, []Nack{{Delivery: Delivery{ID: a1, Token: "1"}, Deferred: true}})
			require.NoError(r.T, err)
			return "2/0/0"
		},
		"release": func(r *scene, g *Group) string {
			_, err := g.Release(r.Ctx(), []Release{{Delivery: Delivery{ID: a1, Token: "1"}, DueAt: r.Now()}})
			require.NoError(r.T, err)
			return "2/0/0"
		},
		"lost": func(r *scene, _ *Group) string {
			r.Expire("g", a1)
			return "2/0/1"
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newScene(t)
			g := r.group("g")
			r.push(due(a1), due(a2), due(a3))
			require.Equal(t, tokens("1", a1), r.claim(g, "c", 10))
			assert.Equal(t, tokens(fail(r, g), a1), r.claim(g, "d", 10))
			assert.Equal(t, a1, r.State()["turns:g 1,a"])
		})
	}
}

func TestAMessageThatAPersonBuriesHaltsItsKeyUnlessAnotherHasTheTurn(t *testing.T) {
	r := newScene(t)
	g, h := r.group("g"), r.group("h")
	require.NoError(t, errOf(r.partition.limit(t.Context(), "g", Limits{HaltsKeys: true}, 1, "")))
	r.push(due(a1), due(a2), due(a3))
	require.Equal(t, tokens("1", a1), r.claim(h, "c", 10), "now they are in both queues")
	require.NoError(t, errOf(g.BuryAny(t.Context(), "bad", []string{a1})))
	assert.Equal(t, a1, r.State()["turns:g 1,a"])
	assert.Empty(t, r.claim(g, "c", 10), "it halts")

	require.NoError(t, errOf(Discard(t.Context(), g, []string{a1}, ever)))
	require.Equal(t, tokens("1", a2), r.claim(g, "c", 10))
	require.NoError(t, errOf(g.BuryAny(t.Context(), "bad", []string{a3})))
	ack(t, g, a2)
	assert.NotContains(t, r.State(), "turns:g 1,a", "it halts nothing")
}

func TestALetterThatHaltsItsKeyHaltsItNoLongerOnceTheGroupSaysSo(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	_, err := r.partition.limit(t.Context(), "g", Limits{HaltsKeys: true}, 1, "")
	require.NoError(t, err)
	r.push(due(a1), due(a2), due(a3))
	require.Equal(t, tokens("1", a1), r.claim(g, "c", 10))
	nack(t, g, Nack{Delivery: Delivery{ID: a1, Token: "1"}, Reason: "bad"})
	assert.Empty(t, r.claim(g, "c", 10), "it halts")
	assert.Equal(t, a1, r.State()["turns:g 1,a"])

	_, err = r.partition.limit(t.Context(), "g", Limits{}, 1, "")
	require.NoError(t, err)
	claims, err := g.Claim(t.Context(), r.request("c", 10))
	require.NoError(t, err)
	assert.Zero(t, claims.Next, "this claim passes the turn on")
	assert.Equal(t, tokens("1", a2), r.claim(g, "c", 10))
}

// TestAClaimThatEndsATurnLooksAgainAtOnce also if nobody waits for it: a claim looks at some turns only, and those of
// other dead letters may hold messages up. It does so once for each turn: then it says when the next message is due.
func TestAClaimThatEndsATurnLooksAgainAtOnce(t *testing.T) {
	for name, limits := range map[string]Limits{
		"without limits": {}, "with limits": {MaxInFlight: 1, Messages: 7, Per: 3 * time.Second, Burst: 4},
	} {
		t.Run(name, func(t *testing.T) {
			r := newScene(t)
			g := r.group("g")
			halting := limits
			halting.HaltsKeys = true
			require.NoError(t, errOf(r.partition.limit(t.Context(), "g", halting, 1, "")))
			r.push(due(a1), after("later", 60))
			require.Equal(t, tokens("1", a1), r.claim(g, "c", 10))
			nack(t, g, Nack{Delivery: Delivery{ID: a1, Token: "1"}, Reason: "bad"})

			require.NoError(t, errOf(r.partition.limit(t.Context(), "g", limits, 1, "")))
			claims, err := g.Claim(t.Context(), r.request("c", 10))
			require.NoError(t, err)
			assert.Zero(t, claims.Next)
			assert.NotContains(t, r.State(), "turns:g 1,a")
			claims, err = g.Claim(t.Context(), r.request("c", 10))
			require.NoError(t, err)
			assert.Positive(t, claims.Next)
		})
	}
}

// TestTheTurnsOfManyLettersEndWithoutAPause finds the one turn that somebody waits for among those of other dead letters.
func TestTheTurnsOfManyLettersEndWithoutAPause(t *testing.T) {
	const letters = 12
	r := newScene(t)
	g := r.group("g")
	require.NoError(t, errOf(r.partition.limit(t.Context(), "g", Limits{HaltsKeys: true}, 1, "")))
	for n := range letters {
		r.push(due(ordered(fmt.Sprint("dead", n), fmt.Sprint(n))))
	}
	for _, id := range r.claim(g, "c", letters) {
		nack(t, g, Nack{Delivery: Delivery{ID: strings.TrimSuffix(id, "#1"), Token: "1"}, Reason: "bad"})
	}
	waits := ordered("waits", "7")
	r.push(due(waits))
	require.Empty(t, r.claim(g, "c", 10), "it goes in line")

	require.NoError(t, errOf(r.partition.limit(t.Context(), "g", Limits{}, 1, "")))
	var got []string
	for range letters + 1 {
		claims, err := g.Claim(t.Context(), r.request("c", 10))
		require.NoError(t, err)
		if got = append(got, deliveries(claims)...); claims.Next != 0 {
			break
		}
	}
	assert.Equal(t, tokens("1", waits), got)
}

func TestWhatWaitsInLineKeepsItsPlaceUnlessItIsPutOff(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due(a1), due(a2), due(a3))
	require.Equal(t, tokens("1", a1), r.claim(g, "c", 10))
	before := r.State()
	_, err := r.partition.RescheduleID(t.Context(), a3, r.Now().UnixMilli()-60_000)
	require.NoError(t, err)
	assert.Equal(t, before, r.State(), "it is due already")

	_, err = r.partition.RescheduleID(t.Context(), a2, r.Now().UnixMilli()+60_000)
	require.NoError(t, err)
	assert.Equal(t, "now+60s", r.State()["queue:g "+a2])
	ack(t, g, a1)
	assert.Equal(t, tokens("1", a3), r.claim(g, "c", 10))
}

func TestAMessageThatIsPutOffPassesItsTurnOnAndWakesItsGroup(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due(a1), due(a2))
	require.Equal(t, tokens("1", a1), r.claim(g, "c", 10))
	nack(t, g, Nack{Delivery: Delivery{ID: a1, Token: "1"}, Delay: time.Minute})
	seen := r.Client.ZScore(t.Context(), r.partition.Key(script.QueueOf, "g"), a1).Val()
	next := r.listen(g, "d")
	retime := ofInspect("retime")
	left, err := g.RunForTexts(t.Context(), retime, []any{"queue", int64(seen) + 60_000, r.partition.Channel(), a1, int64(seen)})
	require.NoError(t, err)
	assert.Empty(t, left)
	assert.Zero(t, next().In)
	assert.Equal(t, tokens("1", a2), r.claim(g, "d", 10))
}

// TestNothingIsLeftOfTurnsAndLanes when a group ends, also if that is interrupted.
func TestNothingIsLeftOfTurnsAndLanes(t *testing.T) {
	inUse := func(t *testing.T) (*scene, *Group) {
		r := newScene(t)
		g := r.group("g")
		r.push(due(a1), due(a2), due(a3), due(b1))
		require.Equal(t, tokens("1", a1, b1), r.claim(g, "c", 10))
		return r, g
	}
	again := func(r *scene, g *Group) {
		require.NoError(r.T, g.Register(r.Ctx()))
		r.push(due(ordered("a4", "a")))
		assert.Equal(r.T, tokens("1", ordered("a4", "a")), r.claim(g, "c", 10), "it starts anew")
	}
	t.Run("retired", func(t *testing.T) {
		r, _ := inUse(t)
		_, err := retire(t, r.topicOf(1), "g", RetireForced)
		require.NoError(t, err)
		state := r.State()
		require.Contains(t, state, "settings retired:g")
		delete(state, "settings retired:g")
		assert.Empty(t, state)
	})
	t.Run("restored after a retirement that was interrupted", func(t *testing.T) {
		r, g := inUse(t)
		require.NoError(t, g.retire(t.Context(), RetireForced))
		require.NoError(t, r.topicOf(1).Restore(t.Context(), "g"))
		assert.Empty(t, r.State())
		again(r, g)
	})
	t.Run("ended, and back", func(t *testing.T) {
		r, g := inUse(t)
		require.NoError(t, g.retire(t.Context(), retireEnded))
		again(r, g)
		ack(t, g, ordered("a4", "a"))
		assert.Equal(t, map[string]string{"groups g": "member"}, r.State())
	})
}

// TestAClaimHealsTurns that torn files have left.
func TestAClaimHealsTurns(t *testing.T) {
	for name, damage := range map[string]func(r *scene, turns, lanes string) error{
		"of a message that is nowhere": func(r *scene, turns, _ string) error {
			return r.Client.HSet(r.Ctx(), turns, "1,a", ordered("gone", "a")).Err()
		},
		"of a message that is in line": func(r *scene, turns, _ string) error { return r.Client.HSet(r.Ctx(), turns, "1,a", a3).Err() },
		"of nobody, while others wait": func(r *scene, turns, _ string) error { return r.Client.HDel(r.Ctx(), turns, "1,a").Err() },
		"behind a place of nobody": func(r *scene, turns, lanes string) error {
			r.Client.ZAdd(r.Ctx(), lanes, redis.Z{Member: fmt.Sprintf("1,a%016d%s", 1, ordered("gone", "a"))})
			return r.Client.HDel(r.Ctx(), turns, "1,a").Err()
		},
		"behind a place without a time": func(r *scene, turns, lanes string) error {
			r.Client.ZAdd(r.Ctx(), lanes, redis.Z{Member: "1,a"})
			return r.Client.HDel(r.Ctx(), turns, "1,a").Err()
		},
		"beside a place of no line": func(r *scene, turns, lanes string) error {
			r.Client.ZAdd(r.Ctx(), lanes, redis.Z{Member: "garbled"})
			return r.Client.HDel(r.Ctx(), turns, "1,a").Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newScene(t)
			g := r.group("g")
			r.push(due(a1), due(a2), due(a3))
			require.Equal(t, tokens("1", a1), r.claim(g, "c", 10))
			key := r.partition.Key
			require.NoError(t, r.Client.ZRem(t.Context(), key(script.UnackOf, "g"), a1).Err())
			require.NoError(t, damage(r, key(script.TurnsOf, "g"), key(script.BlockedOf, "g")))
			assert.Empty(t, r.claim(g, "c", 10), "it finds nothing, and heals")
			assert.Equal(t, tokens("1", a2), r.claim(g, "c", 10))
			ack(t, g, a2)
			assert.Equal(t, tokens("1", a3), r.claim(g, "c", 10))
			ack(t, g, a3)
			assert.Equal(t, map[string]string{"groups g": "member", "messages " + a1: "body " + a1}, r.State())
		})
	}
}

// TestAClaimThatATornOneComesBeforeLeasesOneOfAKey: the torn one had given a turn and sent others in line, and leased
// nothing.
func TestAClaimThatATornOneComesBeforeLeasesOneOfAKey(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due(a1), due(a2))
	key := r.partition.Key
	since := r.Client.ZScore(t.Context(), key(script.Scheduled, ""), a2).Val()
	r.Client.HSet(t.Context(), key(script.TurnsOf, "g"), "1,a", a1)
	r.Client.ZAdd(t.Context(), key(script.BlockedOf, "g"), redis.Z{Member: fmt.Sprintf("1,a%016.0f%s", since, a2)})
	r.Client.ZAdd(t.Context(), key(script.QueueOf, "g"), redis.Z{Score: since + script.InLine, Member: a2})

	assert.Equal(t, tokens("1", a1), r.claim(g, "c", 10))
	assert.Empty(t, r.claim(g, "c", 10), "the key is busy")
	ack(t, g, a1)
	assert.Equal(t, tokens("1", a2), r.claim(g, "c", 10))
	ack(t, g, a2)
	assert.Equal(t, map[string]string{"groups g": "member"}, r.State())
}
