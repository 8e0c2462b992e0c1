package inspect

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// TestATornWithdrawalHoldsNoKey: a repeated call finishes it.
func TestATornWithdrawalHoldsNoKey(t *testing.T) {
	id := keyed(1, "k")
	var seen []Seen
	withdraw := func(r *scene) {
		require.NoError(r.T, errOf(Withdraw(r.Ctx(), r.partition.Group(""), InScheduled, seen)))
	}
	arrange := func(r *scene) {
		require.Empty(r.T, r.pushWindow(1<<41, queue.RejectDuplicates, []queue.Message{after(id, 60)}))
		seen = r.seen(r.partition.Key(script.Scheduled, ""), id)
		withdraw(r)
	}
	tornEverywhere(t, "withdrawal", arrange, func(r *scene) {
		r.Reload()
		if state := r.State(); state["messages "+id] == "" {
			require.ErrorIs(r.T, errOf(r.partition.Reschedule(r.Ctx(), "k", 0)), queue.ErrNotFound)
		}
		withdraw(r)
		assert.Empty(r.T, r.State())
	})
}

// TestATornWithdrawalFromAQueueLeavesTheOtherGroupItsMessage: a repeated call finishes it.
func TestATornWithdrawalFromAQueueLeavesTheOtherGroupItsMessage(t *testing.T) {
	var seen []Seen
	withdraw := func(r *scene) {
		require.NoError(r.T, errOf(Withdraw(r.Ctx(), r.partition.Group("g"), InQueue, seen)))
	}
	arrange := func(r *scene) {
		g, _ := r.both()
		nack(r.T, g, queue.Nack{Delivery: queue.Delivery{ID: "a", Token: "1"}, Delay: time.Minute})
		seen = r.seen(r.partition.Key(script.QueueOf, "g"), "a")
		withdraw(r)
	}
	tornEverywhere(t, "withdrawal from a queue", arrange, func(r *scene) {
		r.Reload()
		withdraw(r)
		assert.NotContains(r.T, r.State(), "queue:g a")
		r.hStillGetsIt()
		assert.NotContains(r.T, r.State(), "messages a", "g does not hold it any more")
	})
}
