package queue

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAGroupThatHasExpiredBeginsAnewWhenItIsRegistered(t *testing.T) {
	r := newScene(t)
	g, h := r.expiring("g", time.Minute), r.group("h")
	topic := r.topicOf(1)
	r.push(due("a"), due("b"))
	require.Len(t, r.claim(g, "c", 1), 1)
	ack(t, h, r.ids(r.claim(h, "d", 10))...)
	require.NoError(t, topic.Pause(t.Context(), "g", Pause{}))
	r.consumers("g", 1, time.Hour)
	r.over(r.partition, "g")
	require.Equal(t, "expired", r.look(g)) // and whoever has noticed it dies
	require.NoError(t, topic.Restore(t.Context(), "g"), "which is not for this")
	require.Equal(t, "expired", r.lives()["control retired:g"])
	before := r.lives()
	r.alive(g, "c", time.Minute)
	require.NoError(t, g.Leave(t.Context(), "1h0m0s/0000"))
	delete(before, "consumers:g 1h0m0s/0000")
	require.Equal(t, before, r.lives(), "a consumer that knows nothing of it does not put it off")

	require.NoError(t, g.Register(t.Context()))
	assert.Equal(t, map[string]string{
		"groups g": "member", "groups h": "member",
		"expiry g": "now+60s", "control expiry:g": "lasts 60000ms, ends now+60s, noticed 0",
	}, r.lives())
}

func (*scene) ids(deliveries []string) []string {
	var list []string
	for _, d := range deliveries {
		id, _, _ := strings.Cut(d, "#")
		list = append(list, id)
	}
	return list
}

func TestAConsumerWhoseGroupHasExpiredBeginsItAnewAndIsToldSo(t *testing.T) {
	for _, freed := range []bool{false, true} {
		r := newScene(t)
		g := r.expiring("g", time.Minute)
		r.push(due("a"))
		require.Len(t, r.claim(g, "c", 1), 1)
		r.over(r.partition, "g")
		require.Equal(t, "expired", r.look(g))
		if freed {
			_, err := g.forgetAll(t.Context(), noDeadline)
			require.NoError(t, err)
		}
		r.push(due("b"))
		claims, err := g.Claim(t.Context(), r.request("c", 10))
		require.NoError(t, err)
		assert.Equal(t, []string{"b#1"}, deliveries(claims))
		assert.True(t, claims.Recreated)
		claims, err = g.Claim(t.Context(), r.request("c", 10))
		require.NoError(t, err)
		assert.False(t, claims.Recreated, "once")
	}
}

func TestRetiringAGroupThatHasExpiredKeepsItFromComingBack(t *testing.T) {
	r := newScene(t)
	g := r.expiring("g", time.Minute)
	r.push(due("a"))
	require.Len(t, r.claim(g, "c", 1), 1)
	r.over(r.partition, "g")
	require.Equal(t, "expired", r.look(g))
	freed, err := retire(t, r.topicOf(1), "g", RetireIdle)
	require.NoError(t, err)
	assert.Equal(t, int64(1), freed)
	assert.Equal(t, map[string]string{"control retired:g": ""}, r.lives())
	require.ErrorIs(t, g.Register(t.Context()), ErrGroupRetired)
	require.NoError(t, r.topicOf(1).End(t.Context(), "g"))
	assert.Equal(t, map[string]string{"control retired:g": ""}, r.lives())
}
