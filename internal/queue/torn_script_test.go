package queue

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// both gives a message to two groups; a consumer of each holds it.
func (r *scene) both() (g, h *Group) {
	r.t.Helper()
	g, h = r.group("g"), r.group("h")
	r.push(due("a"))
	require.Equal(r.t, []string{"a#1"}, r.claim(g, "c", 1))
	require.Equal(r.t, []string{"a#1"}, r.claim(h, "e", 1))
	return g, h
}

// hStillGetsIt checks that the group h, which still needs the message, gets it again.
func (r *scene) hStillGetsIt() {
	r.t.Helper()
	h := r.partition.Group("h")
	nack(r.t, h, Nack{Delivery: Delivery{"a", "1"}})
	claims, err := h.Claim(r.ctx(), r.request("e", 1))
	require.NoError(r.t, err)
	require.Empty(r.t, claims.Buried)
	require.Len(r.t, claims.Messages, 1)
	assert.Equal(r.t, "body a", string(claims.Messages[0].Body))
	ack(r.t, h, "a")
}

func TestATornAckCountsForItsOwnGroupOnly(t *testing.T) {
	arrange := func(r *scene) {
		g, _ := r.both()
		ack(r.t, g, "a")
	}
	for _, when := range []string{"before", "after"} {
		tornEverywhere(t, "ack, sent again "+when+" the restart,", arrange, func(r *scene) {
			if when == "after" {
				r.reload()
			}
			ack(r.t, r.partition.Group("g"), "a") // again, since it got no answer
			r.reload()
			r.hStillGetsIt()
			assert.Equal(r.t, map[string]string{"groups g": "member", "groups h": "member"}, r.state())
		})
	}
}

// TestATornAckRepeatsNoFence when its consumer dies and another gets the message.
func TestATornAckRepeatsNoFence(t *testing.T) {
	arrange := func(r *scene) {
		g, _ := r.both()
		r.expire(g, "a")
		require.Equal(r.t, []string{"a#2/0/1"}, r.claim(g, "c", 1))
		ack(r.t, g, "a")
	}
	tornEverywhere(t, "ack", arrange, func(r *scene) {
		r.reload()
		g := r.partition.Group("g")
		r.expire(g, "a")
		for _, delivery := range r.claim(g, "d", 1) {
			assert.Equal(r.t, "a#3/0/2", delivery)
		}
		r.drain(g)
		r.hStillGetsIt()
	})
}

// TestAMessageThatATornScriptBringsBackCountsForItsOwnGroupOnly: the consumer dies,
// another handles the message, and then a restart brings it back.
func TestAMessageThatATornScriptBringsBackCountsForItsOwnGroupOnly(t *testing.T) {
	d := Delivery{"a", "1"}
	for name, settle := range map[string]func(r *scene, g *Group){
		"nack":      func(r *scene, g *Group) { nack(r.t, g, Nack{Delivery: d, Metadata: []byte("changed")}) },
		"deferral":  func(r *scene, g *Group) { nack(r.t, g, Nack{Delivery: d, Metadata: []byte("changed"), Deferred: true}) },
		"last nack": func(r *scene, g *Group) { _, _, _ = g.Nack(r.ctx(), 1, []Nack{{Delivery: d}}) },
		"release":   func(r *scene, g *Group) { _, _ = g.Release(r.ctx(), []Release{{d, time.UnixMilli(1), 0}}) },
		"bury":      func(r *scene, g *Group) { _, _ = g.Bury(r.ctx(), []Burial{{d, "bad"}}) },
	} {
		arrange := func(r *scene) {
			g, _ := r.both()
			settle(r, g)
		}
		tornEverywhere(t, name, arrange, func(r *scene) {
			g := r.partition.Group("g")
			r.expire(g, "a")
			require.Equal(r.t, []string{"a#2/0/1"}, r.claim(g, "d", 1))
			ack(r.t, g, "a")
			r.reload()
			r.drain(g)
			r.hStillGetsIt()
			for _, kind := range []string{"messages a", "refs a", "queue:g a", "unack:g a", "dead:g a"} {
				assert.NotContains(r.t, r.state(), kind)
			}
		})
	}
}

// drain acks all that a group has, dead letters included.
func (r *scene) drain(g *Group) {
	r.t.Helper()
	for range 3 {
		p := r.partition.Names
		_, err := Requeue(r.ctx(), g, ever, append(r.client.ZRange(r.ctx(), p.Key(script.DeadOf, g.name), 0, -1).Val(), "none"))
		require.NoError(r.t, err)
		for _, id := range r.client.ZRange(r.ctx(), p.Key(script.UnackOf, g.name), 0, -1).Val() {
			r.expire(g, id)
		}
		for _, delivery := range r.claim(g, "drain", 100) {
			id, _, _ := strings.Cut(delivery, "#")
			ack(r.t, g, id)
		}
	}
	_, err := Discard(r.ctx(), g, ever, append(r.client.ZRange(r.ctx(), r.partition.Key(script.DeadOf, g.name), 0, -1).Val(), "none"))
	require.NoError(r.t, err)
}

// TestATornCancelHoldsNoKey: a repeated call finishes it; without one, either the message
// is delivered or nothing holds its key.
func TestATornCancelHoldsNoKey(t *testing.T) {
	id := keyed(1, "k")
	var call func() []any
	arrange := func(r *scene) {
		r.push(after(id, 60))
		call = r.keyedCall(cancelScript, 1, time.Minute)
		require.Equal(r.t, []any{"cancelled", id, "scheduled"}, call())
	}
	tornEverywhere(t, "cancel", arrange, func(r *scene) {
		r.reload()
		state := r.state()
		_, whole := state["messages "+id]
		if whole {
			assert.Contains(r.t, state, "scheduled "+id)
		} else {
			assert.ErrorIs(r.t, errOf(r.partition.Reschedule(r.ctx(), "k", 0)), ErrNotFound)
		}
		assert.Equal(r.t, []any{"cancelled", id, "scheduled"}, call())
		assert.Empty(r.t, r.state())
	})
}
