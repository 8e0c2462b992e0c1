package inspect

import (
	"testing"

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
		require.NoError(r.T, errOf(Withdraw(r.Ctx(), r.partition, seen)))
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
