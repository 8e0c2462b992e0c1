package queue

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
		for _, gone := range []string{"queue:g a", "unack:g a"} {
			assert.NotContains(r.T, state, gone)
		}
		r.drain(r.partition.Group("g"))
		r.hStillGetsIt()
	})
}
