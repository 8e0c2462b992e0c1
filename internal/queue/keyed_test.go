package queue

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCancelTakesAMessageBackFromEverywhere(t *testing.T) {
	id := keyed(1, "k")
	situations := map[string]func(r *rig, g, h *Group){
		"scheduled": func(*rig, *Group, *Group) {},
		"due":       func(r *rig, _, _ *Group) { require.NoError(r.t, r.queue.Reschedule(r.ctx(), "k", 0)) },
		"held by one, queued for the other": func(r *rig, g, _ *Group) {
			require.NoError(r.t, r.queue.Reschedule(r.ctx(), "k", 0))
			require.Equal(r.t, []string{id + "#1"}, r.claim(g, "c", 1))
		},
		"nacked by one, acked by the other": func(r *rig, g, h *Group) {
			require.NoError(r.t, r.queue.Reschedule(r.ctx(), "k", 0))
			r.claim(g, "c", 1)
			r.claim(h, "d", 1)
			nack(r.t, g, Nack{Delivery{id, "1"}, 60_000, []byte("changed")})
			ack(r.t, h, id)
		},
	}
	for name, arrange := range situations {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			g, h := r.group("g"), r.group("h")
			r.push(after(id, 60), after("other", 60))
			arrange(r, g, h)
			require.NoError(t, r.queue.Cancel(t.Context(), "k"))
			assert.Equal(t, map[string]string{
				"groups g": "member", "groups h": "member",
				"scheduled other": "now+60s", "messages other": "body other",
			}, r.state())
			assert.ErrorIs(t, r.queue.Cancel(t.Context(), "k"), ErrNotFound)
		})
	}
}

func TestRescheduleMovesAWaitingMessage(t *testing.T) {
	r := newRig(t)
	g := r.group("g")
	id := keyed(1, "k")
	r.push(after(id, 60))
	require.NoError(t, r.queue.Reschedule(t.Context(), "k", 5_000))
	want := map[string]string{"groups g": "member", "messages " + id: "body " + id, "keys k": id}
	want["scheduled "+id] = "now+5s"
	assert.Equal(t, want, r.state())

	require.NoError(t, r.queue.Reschedule(t.Context(), "k", 0))
	r.claim(g, "c", 1)
	assert.ErrorIs(t, r.queue.Reschedule(t.Context(), "k", 0), ErrNotFound, "a message being handled does not wait")

	nack(t, g, Nack{Delivery{id, "1"}, 60_000, nil})
	require.NoError(t, r.queue.Reschedule(t.Context(), "k", 120_000))
	delete(want, "scheduled "+id)
	want["queue:g "+id], want["attempts:g "+id] = "now+120s", "1"
	assert.Equal(t, want, r.state())
	assert.ErrorIs(t, r.queue.Reschedule(t.Context(), "unknown", 0), ErrNotFound)
}

func TestACancelSentAgainLeavesTheNextHolderAlone(t *testing.T) {
	r := newRig(t)
	first, second := keyed(1, "k"), keyed(2, "k")
	r.push(after(first, 60))
	cancel := func() ([]any, error) {
		p := r.queue.part
		keys := []string{p.scheduled(), p.messages(), p.groups(), p.refs(), p.keys()}
		return run(t.Context(), r.queue.client, p, cancelScript, keys, []any{"k", first})
	}
	reply, err := cancel()
	require.NoError(t, err)
	require.Equal(t, []any{"cancelled"}, reply)
	r.push(after(second, 60))
	before := r.state()
	reply, err = cancel()
	require.NoError(t, err)
	assert.Equal(t, []any{"none"}, reply)
	assert.Equal(t, before, r.state())
}
