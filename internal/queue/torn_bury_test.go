package queue

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestATornBurialByAPersonLosesNothing: a repeated call finishes it.
func TestATornBurialByAPersonLosesNothing(t *testing.T) {
	bury := func(r *scene) {
		left, err := r.partition.Group("g").BuryAny(r.ctx(), "by anna", []string{"a"})
		require.NoError(r.t, err)
		require.Empty(r.t, left)
	}
	arrange := func(r *scene) {
		g, _ := r.both()
		nack(r.t, g, Nack{Delivery: Delivery{"a", "1"}})
		bury(r)
	}
	tornEverywhere(t, "burial", arrange, func(r *scene) {
		r.reload()
		bury(r)
		state := r.state()
		assert.Equal(r.t, "by anna", state["reasons:g a"])
		for _, gone := range []string{"queue:g a", "unack:g a"} {
			assert.NotContains(r.t, state, gone)
		}
		r.drain(r.partition.Group("g"))
		r.hStillGetsIt()
	})
}
