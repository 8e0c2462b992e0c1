package queue

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

func TestADeferralKeepsItsTimeAndMetadata(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	id := keyed(1, "k")
	r.push(due(id))
	r.claim(g, "c", 1)
	next := r.listen(g, "d")
	deferral := Nack{Delivery: Delivery{id, "1"}, Delay: time.Minute, Metadata: []byte("new"), Deferred: true}
	nack(t, g, deferral)
	assert.InDelta(t, time.Minute, next().In, float64(time.Second))
	want := map[string]string{
		"groups g": "member", "messages " + id: "body " + id, "keys k": id,
		"queue:g " + id: "now+60s", "attempts:g " + id: "1/0/0", "changed:g " + id: "new",
	}
	assert.Equal(t, want, r.State())
	stale, buried, err := g.Nack(t.Context(), 1, []Nack{deferral})
	require.NoError(t, err)
	assert.Equal(t, []string{id}, stale, "a deferral sent again changes nothing")
	assert.Empty(t, buried)
	assert.Equal(t, want, r.State())
}

// TestManyNacksOfAllKindsGoOutTogether although their reasons need several calls.
func TestManyNacksOfAllKindsGoOutTogether(t *testing.T) {
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
