package queue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestATornWithdrawalHoldsNoKey: a repeated call finishes it.
func TestATornWithdrawalHoldsNoKey(t *testing.T) {
	id := keyed(1, "k")
	var seen []Seen
	withdraw := func(r *scene) {
		require.NoError(r.t, errOf(r.partition.Group("").Withdraw(r.ctx(), InScheduled, seen)))
	}
	arrange := func(r *scene) {
		require.Empty(r.t, r.pushWindow(1<<41, RejectDuplicates, []Message{after(id, 60)}))
		seen = r.seen(r.partition.names.key(scheduled), id)
		withdraw(r)
	}
	tornEverywhere(t, "withdrawal", arrange, func(r *scene) {
		r.reload()
		if state := r.state(); state["messages "+id] == "" {
			require.ErrorIs(r.t, errOf(r.partition.Reschedule(r.ctx(), "k", 0)), ErrNotFound)
		}
		withdraw(r)
		assert.Empty(r.t, r.state())
	})
}

// TestATornWithdrawalFromAQueueLeavesTheOtherGroupItsMessage: a repeated call finishes it.
func TestATornWithdrawalFromAQueueLeavesTheOtherGroupItsMessage(t *testing.T) {
	var seen []Seen
	withdraw := func(r *scene) {
		require.NoError(r.t, errOf(r.partition.Group("g").Withdraw(r.ctx(), InQueue, seen)))
	}
	arrange := func(r *scene) {
		g, _ := r.both()
		nack(r.t, g, Nack{Delivery: Delivery{"a", "1"}, Delay: time.Minute})
		seen = r.seen(r.partition.names.keyOf(queueOf, "g"), "a")
		withdraw(r)
	}
	tornEverywhere(t, "withdrawal from a queue", arrange, func(r *scene) {
		r.reload()
		withdraw(r)
		assert.NotContains(r.t, r.state(), "queue:g a")
		r.hStillGetsIt()
		assert.NotContains(r.t, r.state(), "messages a", "g does not hold it any more")
	})
}

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
