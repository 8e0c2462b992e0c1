package queue

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func z(score float64, member string) redis.Z { return redis.Z{Score: score, Member: member} }

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
