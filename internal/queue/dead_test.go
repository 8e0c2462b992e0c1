package queue

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// bury makes a message a dead letter of a group in its first delivery.
func (r *scene) bury(g *Group, ids ...string) {
	r.t.Helper()
	for _, id := range ids {
		require.Equal(r.t, []string{id + "#1"}, r.claim(g, "c", 1))
		stale, err := g.Bury(r.ctx(), []Burial{{Delivery{id, "1"}, "bad " + id}})
		require.NoError(r.t, err)
		require.Empty(r.t, stale)
	}
}

func TestDeadLettersHaveBodyAndReason(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"), due("b"), due("c"))
	r.bury(g, "a", "b", "c")
	require.NoError(t, r.client.HDel(t.Context(), r.partition.names.key(messages), "b").Err())
	require.NoError(t, r.client.HSet(t.Context(), r.partition.names.keyOf(changedOf, "g"), "c", "changed").Err())

	letters, err := g.DeadLetters(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, letters, 3)
	for i, want := range []DeadLetter{
		{ID: "a", Reason: "bad a", Body: []byte("body a")},
		{ID: "b", Reason: "bad b"},
		{ID: "c", Reason: "bad c", Body: []byte("body c"), Metadata: []byte("changed")},
	} {
		want.BuriedAt = letters[i].BuriedAt
		assert.Equal(t, want, letters[i])
	}
	letters, err = g.DeadLetters(t.Context(), 2)
	require.NoError(t, err)
	assert.Len(t, letters, 2)
	letters, err = r.partition.Group("unknown").DeadLetters(t.Context(), 2)
	require.NoError(t, err)
	assert.Empty(t, letters)
}

func TestRequeueCountsAnewButRepeatsNoToken(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"))
	r.bury(g, "a")
	missing, err := g.Requeue(t.Context(), ever, []string{"a", "unknown"})
	require.NoError(t, err)
	assert.Equal(t, []string{"unknown"}, missing)
	assert.Equal(t, map[string]string{
		"groups g": "member", "queue:g a": "now+0s", "attempts:g a": "1/0/0", "messages a": "body a",
	}, r.state())
	require.Equal(t, []string{"a#2/0/0"}, r.claim(g, "d", 1))
	before := r.state()
	stale, _, err := g.Nack(t.Context(), 0, []Nack{{Delivery: Delivery{"a", "1"}}})
	require.NoError(t, err)
	assert.Equal(t, []string{"a"}, stale)
	assert.Equal(t, before, r.state())
	missing, err = g.Requeue(t.Context(), ever, []string{"a"})
	require.NoError(t, err)
	assert.Equal(t, []string{"a"}, missing, "sent again")
}

func TestDiscardRemovesAllOfADeadLetter(t *testing.T) {
	r := newScene(t)
	g, h := r.group("g"), r.group("h")
	r.push(due("a"))
	r.bury(g, "a")
	require.Equal(t, []string{"a#1"}, r.claim(h, "d", 1))
	missing, err := g.Discard(t.Context(), ever, []string{"a", "unknown"})
	require.NoError(t, err)
	assert.Equal(t, []string{"unknown"}, missing)
	assert.Equal(t, map[string]string{
		"groups g": "member", "groups h": "member", "unack:h a": "now+30s", "messages a": "body a", "refs a": `["h"]`,
	}, r.state(), "the other group still needs it")
	ack(t, h, "a")
	assert.Equal(t, map[string]string{"groups g": "member", "groups h": "member"}, r.state())
}
