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

var a1, a2, a3 = ordered("a1", "a"), ordered("a2", "a"), ordered("a3", "a")

func receipts(receipt string, ids ...string) []string {
	list := []string{}
	for _, id := range ids {
		list = append(list, id+"#"+receipt)
	}
	return list
}

// TestOrderingWorksForKeysWithArbitraryBytes: the place of a waiting message contains its ordering key and its message key.
func TestOrderingWorksForKeysWithArbitraryBytes(t *testing.T) {
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
				require.Equal(t, receipts("1", id), r.claim(g, "c", 10))
				require.Empty(t, r.claim(g, "d", 10), "the key is busy")
				ack(t, g, id)
			}
			assert.Equal(t, map[string]string{"groups g": "member"}, r.State())
		})
	}
}

// TestOrderHoldsWhileManyMessagesWaitForTheirGroups: a claim gives the groups only a part of the messages that are due, and
// their queues have a message of the same key that is due later.
func TestOrderHoldsWhileManyMessagesWaitForTheirGroups(t *testing.T) {
	t.Parallel()
	for _, count := range []int{2, 10} {
		r := newScene(t)
		g := r.groupsNamed(count)[0]
		second, first, hot := ordered("1", "wallet"), ordered("900", "wallet"), ordered("2", "hot")
		r.push(due(second), due(hot))
		require.Equal(t, []string{second + "#1", hot + "#1"}, r.claim(g, "slow", 2)) // hot stays in delivery
		_, err := g.Bury(r.Ctx(), []Burial{{Delivery{second, "1"}, "bad"}})
		require.NoError(t, err)
		backlog := make([]Message, 420)
		for i := range backlog {
			backlog[i] = due(ordered(fmt.Sprint(1000+i), "hot"))
		}
		r.push(backlog...)
		r.push(due(first))
		pushed := r.Now().UnixMilli()
		require.Eventually(t, func() bool { return r.Now().UnixMilli() > pushed }, time.Minute, time.Millisecond)
		_, err = Requeue(r.Ctx(), g, []string{second}, ever) // due now, after the first
		require.NoError(t, err)
		var got []string
		for range 8 {
			for _, delivery := range r.claim(g, "c", 100) {
				id, _, _ := strings.Cut(delivery, "#")
				got = append(got, id)
				_, err = g.Ack(r.Ctx(), done(delivery))
				require.NoError(t, err)
			}
		}
		assert.Equal(t, []string{first, second}, got, "%d groups", count)
	}
}

// TestALostDeliveryWithoutATurnIsFenced: its message waits in line, and its old receipt is stale once it is claimed again.
func TestALostDeliveryWithoutATurnIsFenced(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due(a1))
	require.Equal(t, receipts("1", a1), r.claim(g, "c", 1))
	require.NoError(t, r.Client.Del(r.Ctx(), r.partition.Key(script.TurnsOf, "g")).Err(), "damage")
	r.push(due(a2))
	require.Equal(t, receipts("1", a2), r.claim(g, "d", 1))
	r.Expire("g", a1)
	require.Empty(t, r.claim(g, "d", 1))
	require.NoError(t, errOf(g.Ack(r.Ctx(), done(a2))))
	assert.Equal(t, receipts("3/0/1", a1), r.claim(g, "d", 1), "the delivery that was lost counts for nothing")
	stale, _, err := g.Nack(r.Ctx(), 0, []Nack{{Delivery: Delivery{ID: a1, Receipt: "1"}}})
	require.NoError(t, err)
	assert.Equal(t, []string{a1}, stale)
}

// TestBurialsInAClaimPassTheirTurnsOn because heal, which checks a few turns after each claim, would be too slow.
func TestBurialsInAClaimPassTheirTurnsOn(t *testing.T) {
	for name, halts := range map[string]bool{"that continue": false, "that halt": true} {
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

// TestTurnsOfManyDeadMessagesEndWithoutAPause: a waiting message gets its turn although other dead messages have turns too.
func TestTurnsOfManyDeadMessagesEndWithoutAPause(t *testing.T) {
	const dead = 12
	r := newScene(t)
	g := r.group("g")
	require.NoError(t, errOf(r.partition.limit(t.Context(), "g", Limits{HaltsKeys: true}, 1, "")))
	for n := range dead {
		r.push(due(ordered(fmt.Sprint("dead", n), fmt.Sprint(n))))
	}
	for _, id := range r.claim(g, "c", dead) {
		nack(t, g, Nack{Delivery: Delivery{ID: strings.TrimSuffix(id, "#1"), Receipt: "1"}, Reason: "bad"})
	}
	waits := ordered("waits", "7")
	r.push(due(waits))
	require.Empty(t, r.claim(g, "c", 10), "it goes in line")

	require.NoError(t, errOf(r.partition.limit(t.Context(), "g", Limits{}, 1, "")))
	var got []string
	for range dead + 1 {
		claims, err := g.Claim(t.Context(), r.request("c", 10))
		require.NoError(t, err)
		if got = append(got, deliveries(claims)...); claims.Next != 0 {
			break
		}
	}
	assert.Equal(t, receipts("1", waits), got)
}

// TestAClaimRepairsBrokenTurns that torn files have left behind.
func TestAClaimRepairsBrokenTurns(t *testing.T) {
	for name, damage := range map[string]func(r *scene, turns, blocked string) error{
		"of a message that is nowhere": func(r *scene, turns, _ string) error {
			return r.Client.HSet(r.Ctx(), turns, "1,a", ordered("gone", "a")).Err()
		},
		"of a message that waits":     func(r *scene, turns, _ string) error { return r.Client.HSet(r.Ctx(), turns, "1,a", a3).Err() },
		"missing while messages wait": func(r *scene, turns, _ string) error { return r.Client.HDel(r.Ctx(), turns, "1,a").Err() },
		"behind a place of a missing message": func(r *scene, turns, blocked string) error {
			r.Client.ZAdd(r.Ctx(), blocked, redis.Z{Member: fmt.Sprintf("1,a%016d%s", 1, ordered("gone", "a"))})
			return r.Client.HDel(r.Ctx(), turns, "1,a").Err()
		},
		"behind a place without a time": func(r *scene, turns, blocked string) error {
			r.Client.ZAdd(r.Ctx(), blocked, redis.Z{Member: "1,a"})
			return r.Client.HDel(r.Ctx(), turns, "1,a").Err()
		},
		"beside a garbled place": func(r *scene, turns, blocked string) error {
			r.Client.ZAdd(r.Ctx(), blocked, redis.Z{Member: "garbled"})
			return r.Client.HDel(r.Ctx(), turns, "1,a").Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newScene(t)
			g := r.group("g")
			r.push(due(a1), due(a2), due(a3))
			require.Equal(t, receipts("1", a1), r.claim(g, "c", 10))
			key := r.partition.Key
			require.NoError(t, r.Client.ZRem(t.Context(), key(script.UnackOf, "g"), a1).Err())
			require.NoError(t, damage(r, key(script.TurnsOf, "g"), key(script.BlockedOf, "g")))
			assert.Empty(t, r.claim(g, "c", 10), "it finds nothing, and heals")
			assert.Equal(t, receipts("1", a2), r.claim(g, "c", 10))
			ack(t, g, a2)
			assert.Equal(t, receipts("1", a3), r.claim(g, "c", 10))
			ack(t, g, a3)
			assert.Equal(t, map[string]string{"groups g": "member", "messages " + a1: "body " + a1}, r.State())
		})
	}
}
