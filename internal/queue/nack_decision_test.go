package queue

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// TestADeferralIsNoDelivery in any delivery, whether a heartbeat has come before it or not.
func TestADeferralIsNoDelivery(t *testing.T) {
	type round struct {
		token, entry string
		attempt      int
	}
	deferrals := []round{{"1", "1/0/0", 1}, {"2/0/0", "2/0/0", 1}, {"3/0/1", "3/0/0", 1}, {"4/0/1", "4/0/0", 1}}
	afterANack := []round{{"2/1/1", "2/1/0", 2}, {"3/1/1", "3/1/0", 2}}
	afterALoss := []round{{"2/0/1", "2/0/0", 1}, {"3/0/1", "3/0/0", 1}}
	for name, test := range map[string]struct {
		before func(r *scene, g *Group)
		rounds []round
	}{
		"from the first delivery": {func(*scene, *Group) {}, deferrals},
		"after a nack": {func(r *scene, g *Group) {
			r.claim(g, "c", 1)
			nack(r.T, g, Nack{Delivery: Delivery{"a", "1"}})
		}, afterANack},
		"after a lost consumer": {func(r *scene, g *Group) {
			r.claim(g, "c", 1)
			r.Expire(g.Name(), "a")
		}, afterALoss},
	} {
		for _, heartbeat := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", with a heartbeat: ", heartbeat), func(t *testing.T) {
				r := newScene(t)
				g := r.group("g")
				r.push(due("a"))
				test.before(r, g)
				for _, want := range test.rounds {
					claims, err := g.Claim(t.Context(), r.request("c", 1))
					require.NoError(t, err)
					require.Equal(t, []string{"a#" + want.token}, deliveries(claims))
					assert.Equal(t, want.attempt, claims.Messages[0].Attempt, "of "+want.token)
					d := Delivery{"a", want.token}
					if heartbeat {
						_, err := g.Extend(t.Context(), Heartbeat{Lease: lease}, []Held{{d, true}})
						require.NoError(t, err)
					}
					nack(t, g, Nack{Delivery: d, Deferred: true})
					assert.Equal(t, map[string]string{
						"groups g": "member", "messages a": "body a", "queue:g a": "now+0s", "attempts:g a": want.entry,
					}, r.State())
				}
			})
		}
	}
}

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

// TestMaxDeliveriesBuriesNoDeferral even in the last delivery; the next failure is buried.
func TestMaxDeliveriesBuriesNoDeferral(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"))
	for _, token := range []string{"1", "2/0/0", "3/0/1"} {
		request := r.request("c", 1)
		request.MaxDeliveries = 1
		require.Equal(t, []string{"a#" + token}, r.claimWith(g, request))
		_, err := g.Extend(t.Context(), Heartbeat{Lease: lease}, []Held{handedOut("a", token)})
		require.NoError(t, err)
		stale, buried, err := g.Nack(t.Context(), 1, []Nack{{Delivery: Delivery{"a", token}, Deferred: true}})
		require.NoError(t, err)
		assert.Empty(t, stale)
		assert.Empty(t, buried)
	}
	require.Equal(t, []string{"a#4/0/1"}, r.claim(g, "c", 1))
	_, buried, err := g.Nack(t.Context(), 1, []Nack{{Delivery: Delivery{"a", "4/0/1"}}})
	require.NoError(t, err)
	assert.Equal(t, []Buried{{"a", "not acked in 1 deliveries"}}, buried)
	stale, buried, err := g.Nack(t.Context(), 1, []Nack{{Delivery: Delivery{"a", "4/0/1"}, Deferred: true}})
	require.NoError(t, err)
	assert.Equal(t, []string{"a"}, stale, "a deferral buries nothing, so it reports no burial")
	assert.Empty(t, buried)
}

func TestAHandlersBurialKeepsItsReasonAndMetadata(t *testing.T) {
	for _, heartbeat := range []bool{false, true} {
		r := newScene(t)
		g := r.group("g")
		r.push(due("a"))
		r.claim(g, "c", 1)
		if heartbeat {
			_, err := g.Extend(t.Context(), Heartbeat{Lease: lease}, []Held{handedOut("a", "1")})
			require.NoError(t, err)
		}
		burial := Nack{Delivery: Delivery{"a", "1"}, Metadata: []byte("new"), Reason: "no such order"}
		for range 3 { // its reply may be lost
			stale, buried, err := g.Nack(t.Context(), 0, []Nack{burial})
			require.NoError(t, err)
			assert.Empty(t, stale)
			assert.Equal(t, []Buried{{"a", "no such order"}}, buried)
			assert.Equal(t, map[string]string{
				"groups g": "member", "messages a": "body a", "dead:g a": "now+0s", "reasons:g a": "no such order",
				"attempts:g a": "1/1/0", "changed:g a": "new",
			}, r.State(), "the delivery counts")
		}
		other := burial
		other.Reason = "another reason"
		stale, buried, err := g.Nack(t.Context(), 0, []Nack{other})
		require.NoError(t, err)
		assert.Equal(t, []string{"a"}, stale, "it is not what buried the message")
		assert.Empty(t, buried)
	}
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
