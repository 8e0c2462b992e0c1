package queue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestATornPushTakesNoKeyWithoutItsMessage, so sending it again, or publishing the message
// anew, loses nothing.
func TestATornPushTakesNoKeyWithoutItsMessage(t *testing.T) {
	id := keyed(1, "k")
	push := func(r *scene, publisher, id string) int {
		r.t.Helper()
		rejected, err := r.partition.Push(r.ctx(), Batch{
			Publisher: publisher, Number: 1, Duplicates: RejectDuplicates, Window: time.Minute, Calls: [][]Message{{due(id)}},
		})
		require.NoError(r.t, err)
		return len(rejected)
	}
	arrange := func(r *scene) {
		r.group("g")
		require.Zero(r.t, push(r, "p", id))
	}
	for _, when := range []string{"before", "after"} {
		tornEverywhere(t, "push, sent again "+when+" the restart,", arrange, func(r *scene) {
			if when == "after" {
				r.reload()
			}
			require.Zero(r.t, push(r, "p", id), "it is not its own duplicate")
			r.reload()
			assert.Equal(r.t, map[string]string{
				"groups g": "member", "scheduled " + id: "now+0s", "messages " + id: "body " + id, "keys k": id, "taken k": "now+60s",
			}, r.state())
		})
	}
	tornEverywhere(t, "push of a publisher that is gone", arrange, func(r *scene) {
		r.reload()
		next := keyed(2, "k")
		refused := push(r, "q", next) > 0
		g := r.partition.Group("g")
		claims, err := g.Claim(r.ctx(), r.request("c", 10))
		require.NoError(r.t, err)
		require.NotEmpty(r.t, claims.Messages, "refused: %v", refused)
	})
}

// TestATornCancelLeavesNoWindowWithoutItsMessage, so the caller can publish anew.
func TestATornCancelLeavesNoWindowWithoutItsMessage(t *testing.T) {
	id, next := keyed(1, "k"), keyed(2, "k")
	var call func() []any
	arrange := func(r *scene) {
		r.pushWindow(1, RejectDuplicates, []Message{after(id, 60)})
		call = r.keyedCall(cancelScript, 1, time.Minute)
		require.Equal(r.t, []any{"cancelled", id, "scheduled"}, call())
	}
	tornEverywhere(t, "cancel", arrange, func(r *scene) {
		r.reload()
		if _, whole := r.state()["messages "+id]; !whole {
			assert.Empty(r.t, r.pushWindow(2, RejectDuplicates, []Message{after(next, 60)}))
			require.NoError(r.t, errOf(r.partition.Cancel(r.ctx(), "k")))
		}
		assert.Equal(r.t, []any{"cancelled", id, "scheduled"}, call())
		assert.Empty(r.t, r.state())
	})
}
