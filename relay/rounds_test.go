package relay

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestAMessageThatComesBackBringsNoOtherNearerToItsEnd: each counts its own rounds.
func TestAMessageThatComesBackBringsNoOtherNearerToItsEnd(t *testing.T) {
	var c circles
	c.published([]string{"x"}, []string{"x1"})
	c.published([]string{"x1"}, []string{"x2"})
	c.published([]string{"x2", "y"}, []string{"x3", "y1"})
	assert.False(t, c.closed("y1"))
	assert.True(t, c.closed("x3"))
}

// TestAMessageThatTheTargetSplitsKeepsItsRounds in all that is stored for it.
func TestAMessageThatTheTargetSplitsKeepsItsRounds(t *testing.T) {
	var c circles
	c.published([]string{"x"}, []string{"x1", "x2"})
	c.published([]string{"x2", "y"}, []string{"x3", "x4", "y1"})
	c.published([]string{"x4"}, []string{"x5"})
	assert.True(t, c.closed("x5"))
	assert.False(t, c.closed("x3"))
}
