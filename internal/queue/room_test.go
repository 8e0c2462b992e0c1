package queue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// settlements are the ways in which a consumer makes room.
var settlements = map[string]func(r *scene, g *Group, d Delivery) error{
	"ack": func(r *scene, g *Group, d Delivery) error {
		acked, err := g.Ack(r.Ctx(), done(d.ID))
		assert.Equal(r.T, err == nil, acked.Room)
		return err
	},
	"relay": func(r *scene, g *Group, d Delivery) error {
		relayed, err := g.Relay(r.Ctx(), r.stream(), []Entry{entryOf(d.ID, d.Token)})
		assert.Equal(r.T, err == nil, relayed.Room)
		return err
	},
	"nack": func(r *scene, g *Group, d Delivery) error {
		_, _, err := g.Nack(r.Ctx(), 0, []Nack{{Delivery: d, Delay: time.Hour}})
		return err
	},
	"release": func(r *scene, g *Group, d Delivery) error {
		_, err := g.Release(r.Ctx(), []Release{{Delivery: d, DueAt: time.Now().Add(time.Hour)}})
		return err
	},
	"bury": func(r *scene, g *Group, d Delivery) error {
		_, err := g.Bury(r.Ctx(), []Burial{{Delivery: d, Reason: "bad"}})
		return err
	},
}

func TestWhoeverMakesRoomWakesTheGroup(t *testing.T) {
	for name, settle := range settlements {
		t.Run(name, func(t *testing.T) {
			r := newScene(t)
			g := r.group("g")
			r.limit("g", Limits{MaxInFlight: 1})
			r.push(due("a"))
			require.Equal(t, []string{"a#1"}, r.claim(g, "c", 10))
			assert.NotContains(t, r.State(), "full g", "nothing else is due, so nobody waits for room")
			r.push(due("b"))
			require.Empty(t, r.claim(g, "c", 10))
			require.Contains(t, r.State(), "full g")
			heard := r.listen(g, "c")
			require.NoError(t, settle(r, g, Delivery{"a", "1"}))
			assert.Zero(t, heard())
			assert.NotContains(t, r.State(), "full g")
			assert.Equal(t, []string{"b#1"}, r.claim(g, "c", 10))
		})
	}
}

// TestAGroupOverItsLimitIsWokenOnceThereIsRoom, not by each message that it settles before.
func TestAGroupOverItsLimitIsWokenOnceThereIsRoom(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"), due("b"), due("c"))
	require.Equal(t, []string{"a#1", "b#1", "c#1"}, r.claim(g, "c", 10))
	r.limit("g", Limits{MaxInFlight: 2})
	r.push(due("d"))
	require.Empty(t, r.claim(g, "c", 10))
	for _, step := range []struct {
		id   string
		room bool
	}{{"a", false}, {"b", true}} {
		acked, err := g.Ack(t.Context(), done(step.id))
		require.NoError(t, err)
		assert.Equal(t, step.room, acked.Room, step.id)
	}
	assert.Equal(t, []string{"d#1"}, r.claim(g, "c", 10))
}

func TestMessagesOfLostLeasesNeedNoRoom(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.limit("g", Limits{MaxInFlight: 2})
	r.push(due("a"), due("b"), due("c"))
	require.Equal(t, []string{"a#1", "b#1"}, r.claim(g, "c", 10))
	r.Expire(g.Name(), "a")
	assert.Equal(t, []string{"a#2/0/1"}, r.claim(g, "d", 10))
	r.Expire(g.Name(), "a")
	request := r.request("e", 10)
	request.MaxDeliveries = 1
	assert.Equal(t, []string{"c#1"}, r.claimWith(g, request), "the spent one leaves its place to another")
	assert.Equal(t, int64(2), r.Client.ZCard(t.Context(), r.partition.Key(script.UnackOf, "g")).Val())
}

func TestACanceledMessageMakesRoom(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	id := keyed(1, "k")
	r.limit("g", Limits{MaxInFlight: 1})
	r.push(due(id), due("b"))
	require.Equal(t, []string{id + "#1"}, r.claim(g, "c", 10))
	require.Contains(t, r.State(), "full g")
	heard := r.listen(g, "c")
	require.NoError(t, errOf(r.partition.Cancel(t.Context(), "k")))
	assert.Zero(t, heard())
	assert.Empty(t, with(r.State(), "full"))
	assert.Equal(t, []string{"b#1"}, r.claim(g, "c", 10))
}
