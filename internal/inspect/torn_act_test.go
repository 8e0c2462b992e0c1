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
		require.NoError(r.t, errOf(Withdraw(r.ctx(), r.partition.Group(""), InScheduled, seen)))
	}
	arrange := func(r *scene) {
		require.Empty(r.t, r.pushWindow(1<<41, queue.RejectDuplicates, []queue.Message{after(id, 60)}))
		seen = r.seen(r.partition.Key(script.Scheduled, ""), id)
		withdraw(r)
	}
	tornEverywhere(t, "withdrawal", arrange, func(r *scene) {
		r.reload()
		if state := r.state(); state["messages "+id] == "" {
			require.ErrorIs(r.t, errOf(r.partition.Reschedule(r.ctx(), "k", 0)), queue.ErrNotFound)
		}
		withdraw(r)
		assert.Empty(r.t, r.state())
	})
}

// TestATornWithdrawalFromAQueueLeavesTheOtherGroupItsMessage: a repeated call finishes it.
func TestATornWithdrawalFromAQueueLeavesTheOtherGroupItsMessage(t *testing.T) {
	var seen []Seen
	withdraw := func(r *scene) {
		require.NoError(r.t, errOf(Withdraw(r.ctx(), r.partition.Group("g"), InQueue, seen)))
	}
	arrange := func(r *scene) {
		g, _ := r.both()
		nack(r.t, g, queue.Nack{Delivery: queue.Delivery{ID: "a", Token: "1"}, Delay: time.Minute})
		seen = r.seen(r.partition.Key(script.QueueOf, "g"), "a")
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
