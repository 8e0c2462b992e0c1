package queue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// bury makes a message a dead letter of a group in its first delivery.
func (r *scene) bury(g *Group, ids ...string) {
	r.T.Helper()
	for _, id := range ids {
		require.Equal(r.T, []string{id + "#1"}, r.claim(g, "c", 1))
		stale, err := g.Bury(r.Ctx(), []Burial{{Delivery{id, "1"}, "bad " + id}})
		require.NoError(r.T, err)
		require.Empty(r.T, stale)
	}
}

func TestDiscardRemovesAllOfADeadLetter(t *testing.T) {
	r := newScene(t)
	g, h := r.group("g"), r.group("h")
	r.push(due("a"))
	r.bury(g, "a")
	require.Equal(t, []string{"a#1"}, r.claim(h, "d", 1))
	missing, err := Discard(t.Context(), g, ever, []string{"a", "unknown"})
	require.NoError(t, err)
	assert.Equal(t, []string{"unknown"}, missing)
	assert.Equal(t, map[string]string{
		"groups g": "member", "groups h": "member", "unack:h a": "now+30s", "messages a": "body a", "refs a": `["h"]`,
	}, r.State(), "the other group still needs it")
	ack(t, h, "a")
	assert.Equal(t, map[string]string{"groups g": "member", "groups h": "member"}, r.State())
}

// TestALateCopyLeavesWhatWasBuriedSinceAlone: the message was requeued, and failed again.
func TestALateCopyLeavesWhatWasBuriedSinceAlone(t *testing.T) {
	for name, call := range map[string]func(g *Group, latest int64) ([]string, error){
		"requeue": func(g *Group, latest int64) ([]string, error) { return Requeue(t.Context(), g, latest, []string{"a"}) },
		"discard": func(g *Group, latest int64) ([]string, error) { return Discard(t.Context(), g, latest, []string{"a"}) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newScene(t)
			g := r.group("g")
			r.push(due("a"))
			r.bury(g, "a")
			latest := r.Now().UnixMilli()
			require.NoError(t, errOf(Requeue(t.Context(), g, latest, []string{"a"})))
			require.Eventually(t, func() bool { return r.Now().UnixMilli() > latest }, time.Second, time.Millisecond)
			require.Equal(t, []string{"a#2/0/0"}, r.claim(g, "c", 1))
			_, err := g.Bury(t.Context(), []Burial{{Delivery{"a", "2/0/0"}, "again"}})
			require.NoError(t, err)
			before := r.State()
			left, err := call(g, latest)
			require.NoError(t, err)
			assert.Equal(t, []string{"a"}, left)
			assert.Equal(t, before, r.State())
			left, err = call(g, r.Now().UnixMilli())
			require.NoError(t, err)
			assert.Empty(t, left)
		})
	}
}
