package queue

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

func z(score float64, member string) redis.Z { return redis.Z{Score: score, Member: member} }

func TestAckRemovesAllOfAMessage(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	id := keyed(1, "k")
	r.push(due(id), due("b"))
	r.claim(g, "c", 10)
	r.Expire(g.Name(), id)
	require.Equal(t, []string{id + "#2/0/1"}, r.claim(g, "c", 10))

	acked, err := g.Ack(t.Context(), done(id, "unknown"))
	require.NoError(t, err)
	assert.Equal(t, []string{"unknown"}, acked.Missing)
	assert.Equal(t, map[string]string{
		"groups g": "member", "unack:g b": "now+30s", "messages b": "body b",
	}, r.State())
}

func TestAckKeepsTheBodyUntilTheLastGroupIsDone(t *testing.T) {
	r := newScene(t)
	g, h := r.group("g"), r.group("h")
	r.push(due("a"))
	r.claim(g, "c", 10)
	r.claim(h, "d", 10)

	ack(t, g, "a")
	want := map[string]string{
		"groups g": "member", "groups h": "member",
		"unack:h a": "now+30s", "messages a": "body a", "refs a": `["h"]`,
	}
	assert.Equal(t, want, r.State())
	ack(t, g, "a")
	assert.Equal(t, want, r.State(), "an ack sent again counts once")
	ack(t, h, "a")
	assert.Equal(t, map[string]string{"groups g": "member", "groups h": "member"}, r.State())
}

func ack(t *testing.T, g *Group, ids ...string) {
	t.Helper()
	_, err := g.Ack(t.Context(), done(ids...))
	require.NoError(t, err)
}

func TestLateAckCountsWhileNobodyElseHasSettled(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"))
	r.claim(g, "stalled", 1)
	r.Expire(g.Name(), "a")
	require.Equal(t, []string{"a#2/0/1"}, r.claim(g, "other", 1))
	ack(t, g, "a")
	assert.Equal(t, map[string]string{"groups g": "member"}, r.State())

	stale, _, err := g.Nack(t.Context(), 0, []Nack{{Delivery: Delivery{"a", "2/0/1"}}})
	require.NoError(t, err)
	assert.Equal(t, []string{"a"}, stale)
	assert.Equal(t, map[string]string{"groups g": "member"}, r.State(), "an acked message does not come back")
}

// stale has the ways to use a delivery that is no longer current.
var stale = map[string]func(t *testing.T, g *Group, d Delivery) ([]string, error){
	"nack": func(t *testing.T, g *Group, d Delivery) ([]string, error) {
		stale, _, err := g.Nack(t.Context(), 0, []Nack{{Delivery: d, Metadata: []byte("stale")}})
		return stale, err
	},
	"deferral": func(t *testing.T, g *Group, d Delivery) ([]string, error) {
		stale, _, err := g.Nack(t.Context(), 0, []Nack{{Delivery: d, Deferred: true}})
		return stale, err
	},
	"handler's burial": func(t *testing.T, g *Group, d Delivery) ([]string, error) {
		stale, _, err := g.Nack(t.Context(), 0, []Nack{{Delivery: d, Reason: "stale"}})
		return stale, err
	},
	"last nack": func(t *testing.T, g *Group, d Delivery) ([]string, error) {
		stale, _, err := g.Nack(t.Context(), 1, []Nack{{Delivery: d}})
		return stale, err
	},
	"extend": func(t *testing.T, g *Group, d Delivery) ([]string, error) {
		return g.Extend(t.Context(), Heartbeat{Lease: time.Hour}, []Held{{Delivery: d, HandedOut: true}})
	},
	"release": func(t *testing.T, g *Group, d Delivery) ([]string, error) {
		return g.Release(t.Context(), []Release{{Delivery: d, DueAt: time.UnixMilli(5)}})
	},
	"bury": func(t *testing.T, g *Group, d Delivery) ([]string, error) {
		return g.Bury(t.Context(), []Burial{{Delivery: d, Reason: "stale"}})
	},
}

func TestAStaleDeliveryChangesNothing(t *testing.T) {
	situations := map[string]func(r *scene, g *Group){
		"leased anew": func(r *scene, g *Group) {
			r.Expire(g.Name(), "a")
			require.Equal(r.T, []string{"a#2/0/1"}, r.claim(g, "other", 1))
		},
		"acked":  func(r *scene, g *Group) { ack(r.T, g, "a") },
		"nacked": func(r *scene, g *Group) { nack(r.T, g, Nack{Delivery: Delivery{"a", "1"}, Delay: time.Minute}) },
		"released and leased anew": func(r *scene, g *Group) {
			_, err := g.Release(r.Ctx(), []Release{{Delivery{"a", "1"}, time.UnixMilli(7), 0}})
			require.NoError(r.T, err)
			require.Equal(r.T, []string{"a#2/0/0"}, r.claim(g, "other", 1))
		},
		"buried": func(r *scene, g *Group) {
			_, err := g.Bury(r.Ctx(), []Burial{{Delivery{"a", "1"}, "bad"}})
			require.NoError(r.T, err)
		},
		"buried, requeued and leased anew": func(r *scene, g *Group) {
			_, err := g.Bury(r.Ctx(), []Burial{{Delivery{"a", "1"}, "bad"}})
			require.NoError(r.T, err)
			_, err = Requeue(r.Ctx(), g, ever, []string{"a"})
			require.NoError(r.T, err)
			require.Equal(r.T, []string{"a#2/0/0"}, r.claim(g, "other", 1))
		},
	}
	for situation, arrange := range situations {
		for name, use := range stale {
			t.Run(situation+"/"+name, func(t *testing.T) {
				r := newScene(t)
				g := r.group("g")
				r.push(due("a"))
				require.Equal(t, []string{"a#1"}, r.claim(g, "stalled", 1))
				arrange(r, g)
				before := r.State()
				refused, err := use(t, g, Delivery{"a", "1"})
				require.NoError(t, err)
				assert.Equal(t, []string{"a"}, refused)
				assert.Equal(t, before, r.State())
			})
		}
	}
}

func TestExtendStartsTheLeaseAnew(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"), due("b"))
	r.claim(g, "c", 10)
	r.Expire(g.Name(), "a")
	refused, err := g.Extend(t.Context(), Heartbeat{Lease: time.Minute}, []Held{held("a", "1"), held("gone", "1")})
	require.NoError(t, err)
	assert.Equal(t, []string{"gone"}, refused)
	assert.Equal(t, map[string]string{
		"groups g": "member", "messages a": "body a", "messages b": "body b",
		"unack:g a": "now+60s", "unack:g b": "now+30s",
	}, r.State(), "an expired lease is current until somebody else claims")
}

func TestADeliveryCountsOnceItIsHandedOut(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"), due("b"))
	r.claim(g, "c", 1)
	steps := []struct{ token, entry, next string }{
		{"1", "1/1/0", "2/1/1"},
		{"2/1/1", "2/2/0", "3/2/1"},
	}
	for _, step := range steps {
		for range 3 { // with each heartbeat
			refused, err := g.Extend(t.Context(), Heartbeat{Lease: time.Minute}, []Held{handedOut("a", step.token)})
			require.NoError(t, err)
			assert.Empty(t, refused)
			assert.Equal(t, map[string]string{
				"groups g": "member", "messages a": "body a", "unack:g a": "now+60s", "attempts:g a": step.entry,
				"messages b": "body b", "scheduled b": "now+0s",
			}, r.State())
		}
		r.Expire(g.Name(), "a")
		require.Equal(t, []string{"a#" + step.next}, r.claim(g, "c", 1))
	}
	nack(t, g, Nack{Delivery: Delivery{"a", "3/2/1"}})
	assert.Equal(t, "3/3/0", r.State()["attempts:g a"])
}

func TestANackAfterAHeartbeatCountsTheDeliveryOnce(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"))
	r.claim(g, "c", 1)
	_, err := g.Extend(t.Context(), Heartbeat{Lease: lease}, []Held{handedOut("a", "1")})
	require.NoError(t, err)
	nack(t, g, Nack{Delivery: Delivery{"a", "1"}})
	assert.Equal(t, "1/1/0", r.State()["attempts:g a"])
}

func TestReleaseDoesNotCountTheDelivery(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"))
	claims, err := g.Claim(t.Context(), r.request("c", 1))
	require.NoError(t, err)
	dueAt := claims.Messages[0].DueAt
	for i, token := range []string{"1", "2/0/0", "3/0/1"} {
		_, err := g.Release(t.Context(), []Release{{Delivery{"a", token}, dueAt, 0}})
		require.NoError(t, err)
		assert.Equal(t, map[string]string{
			"groups g": "member", "messages a": "body a",
			"queue:g a": "now+0s", "attempts:g a": []string{"1/0/0", "2/0/0", "3/0/0"}[i],
		}, r.State())
		score := r.Client.ZScore(t.Context(), r.partition.Key(script.QueueOf, "g"), "a").Val()
		assert.Equal(t, dueAt.UnixMilli(), int64(score), "the message keeps its due time")
		r.claim(g, "c", 1)
	}
	r.Expire(g.Name(), "a")
	assert.Equal(t, []string{"a#5/0/2"}, r.claim(g, "c", 1), "the previous delivery was for a free worker, and is lost")
	_, err = g.Release(t.Context(), []Release{{Delivery{"a", "5/0/2"}, dueAt, 0}})
	require.NoError(t, err)
	assert.Equal(t, "5/0/1", r.State()["attempts:g a"], "this one was for a free worker too, and was given back")
}

func TestBuryKeepsTheRawBodyAndFreesTheKey(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	id := keyed(1, "k")
	r.push(due(id))
	r.claim(g, "c", 1)
	_, err := g.Bury(t.Context(), []Burial{{Delivery{id, "1"}, "cannot decode"}})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{
		"groups g": "member", "messages " + id: "body " + id,
		"dead:g " + id: "now+0s", "reasons:g " + id: "cannot decode", "keys k": "!" + id,
	}, r.State())
}

func TestNackAndReleaseWakeTheirOwnGroup(t *testing.T) {
	r := newScene(t)
	g, h := r.group("g"), r.group("h")
	r.push(due("a"), due("b"))
	r.claim(g, "c", 10)
	r.claim(h, "d", 10)
	next := r.listen(g, "c")
	nack(t, h, Nack{Delivery: Delivery{"a", "1"}, Delay: 5 * time.Second})
	nack(t, g, Nack{Delivery: Delivery{"a", "1"}, Delay: time.Minute})
	hint := next()
	assert.InDelta(t, time.Minute, hint.In, float64(time.Second), "it does not hear the nack of the other group")
	assert.False(t, hint.Looked)

	_, err := g.Release(t.Context(), []Release{{Delivery{"b", "1"}, r.Now(), 0}})
	require.NoError(t, err)
	assert.Equal(t, Hint{}, next())
}
