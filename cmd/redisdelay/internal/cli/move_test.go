package cli

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestADryRunOfAMoveMovesNothing, makes no topic, and says what the move would be for.
func TestADryRunOfAMoveMovesNothing(t *testing.T) {
	s := newStage(t)
	s.publish("orders", "u", "order-1", "", time.Hour)
	s.publish("orders", "v", "order-2", "", time.Hour)
	keys := s.Client.Keys(t.Context(), "*").Val()
	before := s.must("ls", "orders", "-o", "json")
	for _, which := range [][]string{{"--all"}, {"--key", "order-1"}} {
		out := s.must(append([]string{"move", "orders", "--to", "other", "--dry-run"}, which...)...)
		assert.Contains(t, out, "order-1")
		assert.Contains(t, out, "nothing is done: this is a dry run")
		assert.Equal(t, before, s.must("ls", "orders", "-o", "json"))
		assert.ElementsMatch(t, keys, s.Client.Keys(t.Context(), "*").Val())
	}
	require.Equal(t, 1, s.run("ls", "other").code, "there is no such topic")
	assert.Equal(t, "moved 2 messages to topic \"other\"\n", s.must("move", "orders", "--to", "other", "--key", "order-1", "--key", "order-2"))
	assert.Equal(t, "2\n", s.must("ls", "other", "--count"))
}

// TestOnlyDeadLettersAreMovedAsSuch, by key, too: another message may have it by now.
func TestOnlyDeadLettersAreMovedAsSuch(t *testing.T) {
	s := newStage(t)
	s.publish("orders", "u", "order-1", "", time.Hour)
	r := s.run("dead", "move", "orders", "--key", "order-1", "--to", "parked")
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.err, "not a dead letter")
	assert.Equal(t, "1\n", s.must("ls", "orders", "--count"))
}
