package queue

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAConsumerWhoseMemoryWasSetBackLearnsItsNumber from its first claim.
func TestAConsumerWhoseMemoryWasSetBackLearnsItsNumber(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	for range 5 {
		require.Empty(t, r.claim(g, "c", 1))
	}
	r.push(due("a"))
	state := r.State()
	request := r.request("c", 1)
	request.Number = 2
	_, err := g.Claim(t.Context(), request)
	var behind *BehindError
	require.ErrorAs(t, err, &behind)
	assert.Equal(t, BehindError{5}, *behind)
	assert.Equal(t, state, r.State())
	request.Number = behind.Last + 1
	assert.Equal(t, []string{"a#1"}, r.claimWith(g, request))
}
