package explore

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// follow goes from the first state along some events, and makes all operations that are possible after them.
func (x *Explorer) follow(t *testing.T, events ...string) {
	t.Helper()
	at := x.add(node{state: x.u.first().encode(), memory: -1, parent: -1})
	for _, event := range events {
		x.expandNode(t, at)
		next := x.after(at, event)
		require.Positive(t, next, "%q leads nowhere new from %q", event, x.path(at))
		at = next
	}
	x.expandNode(t, at)
}

// after is the node that an event leads to, -1 if there is none.
func (x *Explorer) after(parent int32, event string) int32 {
	for number, n := range x.nodes {
		if n.parent == parent && n.event == event {
			return int32(number)
		}
	}
	return -1
}

// expandNode makes all transitions from a node. Those of a pair need the moves of its state in memory.
func (x *Explorer) expandNode(t *testing.T, number int32) {
	t.Helper()
	memory := x.nodes[number].memory
	if memory < 0 {
		require.NoError(t, x.expandStates(t.Context(), []int32{number}))
		return
	}
	if x.moves[memory] == nil {
		require.NoError(t, x.expandStates(t.Context(), []int32{memory}))
	}
	x.expandPair(number)
}

// TestATornClaimMayRepeatTheTokenOfAFirstDelivery: a claim that a crash tears gives a message to the queue. Once the retry
// that was there is gone, the next claim takes the message from scheduled and does not see it in the queue,
// where the second restart brings it back. Only the count of what is tolerated tells.
func TestATornClaimMayRepeatTheTokenOfAFirstDelivery(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	unordered := &Universe{
		Name: "torn, two messages and consumers", groups: []string{"g"}, consumers: []string{"a", "b"}, messages: 2,
		deliveries: 2, policies: allPolicies[:1], decides: true, between: 2, after: 1,
	}
	for _, c := range []struct {
		u      *Universe
		writes string // of the torn claim
		gone   string // how the retry ends
	}{
		{universeNamed("torn, an ordering key, at most 1 delivery"), "8", "g: put away #1"},
		{universeNamed("torn, an ordering key, cancelled"), "8", "cancel #1: new, request 2"},
		{unordered, "6", "g: put away #1"},
	} {
		t.Run(c.u.Name, func(t *testing.T) {
			x := New(client, Sources(), c.u, Options{States: mostStates})
			x.follow(
				t,
				"publish #1 as batch 1 (reject)",
				"publish #2 as batch 2 (reject)",
				"register g",
				"#1 in scheduled falls due",
				"g/a claims: new, request 2, limit 1, free 0",
				"g: release #1 with token 1",
				"#2 in scheduled falls due",
				"torn after 1 of "+c.writes+" writes (ZADD queue:g . #2): g/a claims: new, request 3, limit 1, free 0",
				c.gone,
				"g/a claims: new, request 3, limit 1, free 0",
				"second restart",
			)
			assert.Empty(t, x.Violations())
			assert.Positive(t, x.tolerated[sameToken])
		})
	}
}
