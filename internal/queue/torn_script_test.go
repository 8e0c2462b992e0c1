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

// both gives a message to two groups; a consumer of each holds it.
func (r *scene) both() (g, h *Group) {
	r.T.Helper()
	g, h = r.group("g"), r.group("h")
	r.push(due("a"))
	require.Equal(r.T, []string{"a#1"}, r.claim(g, "c", 1))
	require.Equal(r.T, []string{"a#1"}, r.claim(h, "e", 1))
	return g, h
}

// hStillGetsIt checks that the group h, which still needs the message, gets it again.
func (r *scene) hStillGetsIt() {
	r.T.Helper()
	h := r.partition.Group("h")
	nack(r.T, h, Nack{Delivery: Delivery{"a", "1"}})
	claims, err := h.Claim(r.Ctx(), r.request("e", 1))
	require.NoError(r.T, err)
	require.Empty(r.T, claims.Buried)
	require.Len(r.T, claims.Messages, 1)
	assert.Equal(r.T, "body a", string(claims.Messages[0].Body))
	ack(r.T, h, "a")
}

func TestATornAckCountsForItsOwnGroupOnly(t *testing.T) {
	arrange := func(r *scene) {
		g, _ := r.both()
		ack(r.T, g, "a")
	}
	for _, when := range []string{"before", "after"} {
		tornEverywhere(t, "ack, sent again "+when+" the restart,", arrange, func(r *scene) {
			if when == "after" {
				r.Reload()
			}
			ack(r.T, r.partition.Group("g"), "a") // again, since it got no answer
			r.Reload()
			r.hStillGetsIt()
			assert.Equal(r.T, map[string]string{"groups g": "member", "groups h": "member"}, r.State())
		})
	}
}

// TestATornAckRepeatsNoFence when its consumer dies and another gets the message.
func TestATornAckRepeatsNoFence(t *testing.T) {
	arrange := func(r *scene) {
		g, _ := r.both()
		r.Expire(g.Name(), "a")
		require.Equal(r.T, []string{"a#2/0/1"}, r.claim(g, "c", 1))
		ack(r.T, g, "a")
	}
	tornEverywhere(t, "ack", arrange, func(r *scene) {
		r.Reload()
		g := r.partition.Group("g")
		r.Expire(g.Name(), "a")
		for _, delivery := range r.claim(g, "d", 1) {
			assert.Equal(r.T, "a#3/0/2", delivery)
		}
		r.drain(g)
		r.hStillGetsIt()
	})
}

// TestATornBurialByAPersonLosesNothing: a repeated call finishes it.
func TestATornBurialByAPersonLosesNothing(t *testing.T) {
	bury := func(r *scene) {
		left, err := r.partition.Group("g").BuryAny(r.Ctx(), "by anna", []string{"a"})
		require.NoError(r.T, err)
		require.Empty(r.T, left)
	}
	arrange := func(r *scene) {
		g, _ := r.both()
		nack(r.T, g, Nack{Delivery: Delivery{"a", "1"}})
		bury(r)
	}
	tornEverywhere(t, "burial", arrange, func(r *scene) {
		r.Reload()
		bury(r)
		state := r.State()
		assert.Equal(r.T, "by anna", state["reasons:g a"])
		assert.Empty(r.T, state["queue:g a"]+state["unack:g a"])
		r.drain(r.partition.Group("g"))
		r.hStillGetsIt()
	})
}

// TestAMessageThatATornScriptBringsBackCountsForItsOwnGroupOnly: the consumer dies,
// another handles the message, and then a restart brings it back.
func TestAMessageThatATornScriptBringsBackCountsForItsOwnGroupOnly(t *testing.T) {
	d := Delivery{"a", "1"}
	for name, settle := range map[string]func(r *scene, g *Group){
		"nack":      func(r *scene, g *Group) { nack(r.T, g, Nack{Delivery: d, Metadata: []byte("changed")}) },
		"deferral":  func(r *scene, g *Group) { nack(r.T, g, Nack{Delivery: d, Metadata: []byte("changed"), Deferred: true}) },
		"last nack": func(r *scene, g *Group) { _, _, _ = g.Nack(r.Ctx(), 1, []Nack{{Delivery: d}}) },
		"release":   func(r *scene, g *Group) { _, _ = g.Release(r.Ctx(), []Release{{d, time.UnixMilli(1), 0}}) },
		"bury":      func(r *scene, g *Group) { _, _ = g.Bury(r.Ctx(), []Burial{{d, "bad"}}) },
	} {
		arrange := func(r *scene) {
			g, _ := r.both()
			settle(r, g)
		}
		tornEverywhere(t, name, arrange, func(r *scene) {
			g := r.partition.Group("g")
			r.Expire(g.Name(), "a")
			require.Equal(r.T, []string{"a#2/0/1"}, r.claim(g, "d", 1))
			ack(r.T, g, "a")
			r.Reload()
			r.drain(g)
			r.hStillGetsIt()
			for _, kind := range []string{"messages a", "refs a", "queue:g a", "unack:g a", "dead:g a"} {
				assert.NotContains(r.T, r.State(), kind)
			}
		})
	}
}

// drain acks all that a group has, dead letters included, and returns the ids of what it has got.
func (r *scene) drain(g *Group) (got []string) {
	r.T.Helper()
	for range 3 {
		p := r.partition.Names
		_, err := Requeue(r.Ctx(), g, ever, append(r.Client.ZRange(r.Ctx(), p.Key(script.DeadOf, g.name), 0, -1).Val(), "none"))
		require.NoError(r.T, err)
		for _, id := range r.Client.ZRange(r.Ctx(), p.Key(script.UnackOf, g.name), 0, -1).Val() {
			r.Expire(g.Name(), id)
		}
		for _, delivery := range r.claim(g, "drain", 100) {
			id, _, _ := strings.Cut(delivery, "#")
			ack(r.T, g, id)
			got = append(got, id)
		}
	}
	_, err := Discard(r.Ctx(), g, ever, append(r.Client.ZRange(r.Ctx(), r.partition.Key(script.DeadOf, g.name), 0, -1).Val(), "none"))
	require.NoError(r.T, err)
	return got
}

// TestATornCancelHoldsNoKeyAndNoWindow: a repeated call finishes it; without one, either the message
// is delivered or its key can be taken again.
func TestATornCancelHoldsNoKeyAndNoWindow(t *testing.T) {
	id, next := keyed(1, "k"), keyed(2, "k")
	for _, window := range []time.Duration{0, time.Minute} {
		var call func() []any
		arrange := func(r *scene) {
			require.NoError(r.T, errOf(r.pushFor(window, 1, RejectDuplicates, []Message{after(id, 60)})))
			call = r.keyedCall(cancelScript, 1, time.Minute)
			require.Equal(r.T, []any{"cancelled", id, "scheduled"}, call())
		}
		tornEverywhere(t, fmt.Sprint("cancel with a window of ", window), arrange, func(r *scene) {
			r.Reload()
			state := r.State()
			if _, whole := state["messages "+id]; whole {
				assert.Contains(r.T, state, "scheduled "+id)
			} else {
				require.ErrorIs(r.T, errOf(r.partition.Reschedule(r.Ctx(), "k", 0)), ErrNotFound)
				assert.Empty(r.T, r.pushWindow(2, RejectDuplicates, []Message{after(next, 60)}))
				require.NoError(r.T, errOf(r.partition.Cancel(r.Ctx(), "k")))
			}
			assert.Equal(r.T, []any{"cancelled", id, "scheduled"}, call())
			assert.Empty(r.T, r.State())
		})
	}
}

// TestATornPushTakesNoKeyWithoutItsMessage, so sending it again, or publishing the message
// anew, loses nothing.
func TestATornPushTakesNoKeyWithoutItsMessage(t *testing.T) {
	id := keyed(1, "k")
	push := func(r *scene, publisher, id string) int {
		r.T.Helper()
		rejected, err := r.partition.Push(r.Ctx(), Batch{
			Publisher: publisher, Number: 1, Duplicates: RejectDuplicates, Window: time.Minute, Calls: [][]Message{{due(id)}},
		})
		require.NoError(r.T, err)
		return len(rejected)
	}
	arrange := func(r *scene) {
		r.group("g")
		require.Zero(r.T, push(r, "p", id))
	}
	for _, when := range []string{"before", "after"} {
		tornEverywhere(t, "push, sent again "+when+" the restart,", arrange, func(r *scene) {
			if when == "after" {
				r.Reload()
			}
			require.Zero(r.T, push(r, "p", id), "it is not its own duplicate")
			r.Reload()
			assert.Equal(r.T, map[string]string{
				"groups g": "member", "scheduled " + id: "now+0s", "messages " + id: "body " + id, "keys k": id, "taken k": "now+60s",
			}, r.State())
		})
	}
	tornEverywhere(t, "push of a publisher that is gone", arrange, func(r *scene) {
		r.Reload()
		next := keyed(2, "k")
		refused := push(r, "q", next) > 0
		g := r.partition.Group("g")
		claims, err := g.Claim(r.Ctx(), r.request("c", 10))
		require.NoError(r.T, err)
		require.NotEmpty(r.T, claims.Messages, "refused: %v", refused)
	})
}
