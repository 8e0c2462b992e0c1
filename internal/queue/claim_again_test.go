package queue

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestARepeatTakesWhatFitsItsBytes, with metadata of its group, and always one message.
func TestARepeatTakesWhatFitsItsBytes(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"), due("b"), due("c"))
	for _, delivery := range r.claim(g, "c", 3) {
		id, token := delivery[:1], delivery[2:]
		require.NoError(t, errOf3(g.Nack(t.Context(), 0, []Nack{{Delivery: Delivery{id, token}, Metadata: []byte("metadata")}})))
	}
	request := r.request("c", 3)
	require.Len(t, r.claimWith(g, request), 3)
	request.Bytes = 2 * len("body ametadata")
	require.Len(t, r.claimWith(g, request), 2)
	request.Bytes--
	claims, err := g.Claim(t.Context(), request)
	require.NoError(t, err)
	require.Len(t, claims.Messages, 1)
	assert.Equal(t, "metadata", string(claims.Messages[0].Metadata))
	request.Bytes = 1
	assert.Len(t, r.claimWith(g, request), 1)
}

func errOf3[T, U any](_ T, _ U, err error) error { return err }
