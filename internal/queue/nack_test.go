package queue

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

func nack(t *testing.T, g *Group, nacks ...Nack) {
	t.Helper()
	stale, _, err := g.Nack(t.Context(), 0, nacks)
	require.NoError(t, err)
	require.Empty(t, stale)
}

// TestNacksOfAllKindsAreSentInFewCalls even if their reasons do not fit in one.
func TestNacksOfAllKindsAreSentInFewCalls(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	ids := r.Store(r.partition.Key(script.UnackOf, "g"), 1500, 10)
	var nacks []Nack
	for i, id := range ids {
		n := Nack{Delivery: Delivery{id, "1"}, Delay: time.Hour}
		switch i % 3 {
		case 0:
			n.Deferred = true
		case 1:
			n.Reason = strings.Repeat("r", 2000)
		}
		nacks = append(nacks, n)
	}
	evals := r.Watch("ZREM", r.partition.Key(script.UnackOf, "g"))
	stale, buried, err := g.Nack(t.Context(), 0, nacks)
	require.NoError(t, err)
	assert.Empty(t, stale)
	assert.Len(t, buried, 500)
	entries := r.Client.HVals(t.Context(), r.partition.Key(script.AttemptsOf, "g")).Val()
	counts := map[string]int{}
	for _, entry := range entries {
		counts[entry]++
	}
	assert.Equal(t, map[string]int{"1/0/0": 500, "1/1/0": 1000}, counts)
	begun := 0
	for _, use := range evals() {
		if use[0] == `""` {
			begun++
		}
	}
	assert.Equal(t, 2, begun, "calls")
}

// TestAcksAreSplitIntoBoundedCalls because an ack reads and writes a list of groups for each message.
func TestAcksAreSplitIntoBoundedCalls(t *testing.T) {
	r := newScene(t)
	r.group("g")
	ids := r.Store(r.partition.Key(script.UnackOf, "g"), 2*maxAcked+1, 1)
	called := r.watched()
	ack(t, r.partition.Group("g"), ids...)
	assert.Equal(t, []string{"ack", "ack", "ack"}, *called)
	assert.Zero(t, r.Client.Exists(r.Ctx(), r.partition.Key(script.UnackOf, "g")).Val())
}

// bury makes messages dead messages of a group in their first delivery.
func (r *scene) bury(g *Group, ids ...string) {
	r.T.Helper()
	for _, id := range ids {
		require.Equal(r.T, []string{id + "#1"}, r.claim(g, "c", 1))
		stale, err := g.Bury(r.Ctx(), []Burial{{Delivery{id, "1"}, "bad " + id}})
		require.NoError(r.T, err)
		require.Empty(r.T, stale)
	}
}

func z(score float64, member string) redis.Z { return redis.Z{Score: score, Member: member} }

// ack acks deliveries in the form of done.
func ack(t *testing.T, g *Group, deliveries ...string) {
	t.Helper()
	acked, err := g.Ack(t.Context(), done(deliveries...))
	require.NoError(t, err)
	require.Empty(t, acked.Stale)
}
