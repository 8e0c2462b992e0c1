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
		r.T.Helper()
		rejected, err := r.partition.Push(r.Ctx(), Batch{
			Publisher: publisher, Number: 1, Duplicates: RejectDuplicates, Window: time.Minute, Calls: [][]Message{{due(id)}},
		})
		require.NoError(r.T, err)
		return len(rejected)
	}
	arrange := func(r *scene) {
		r.group("g")
		require.Zero(r.T, push(r, "p", id))
	}
	for _, when := range []string{"before", "after"} {
		tornEverywhere(t, "push, sent again "+when+" the restart,", arrange, func(r *scene) {
			if when == "after" {
				r.Reload()
			}
			require.Zero(r.T, push(r, "p", id), "it is not its own duplicate")
			r.Reload()
			assert.Equal(r.T, map[string]string{
				"groups g": "member", "scheduled " + id: "now+0s", "messages " + id: "body " + id, "keys k": id, "taken k": "now+60s",
			}, r.State())
		})
	}
	tornEverywhere(t, "push of a publisher that is gone", arrange, func(r *scene) {
		r.Reload()
		next := keyed(2, "k")
		refused := push(r, "q", next) > 0
		g := r.partition.Group("g")
		claims, err := g.Claim(r.Ctx(), r.request("c", 10))
		require.NoError(r.T, err)
		require.NotEmpty(r.T, claims.Messages, "refused: %v", refused)
	})
}

// TestATornCancelLeavesNoWindowWithoutItsMessage, so the caller can publish anew.
func TestATornCancelLeavesNoWindowWithoutItsMessage(t *testing.T) {
	id, next := keyed(1, "k"), keyed(2, "k")
	var call func() []any
	arrange := func(r *scene) {
		r.pushWindow(1, RejectDuplicates, []Message{after(id, 60)})
		call = r.keyedCall(cancelScript, 1, time.Minute)
		require.Equal(r.T, []any{"cancelled", id, "scheduled"}, call())
	}
	tornEverywhere(t, "cancel", arrange, func(r *scene) {
		r.Reload()
		if _, whole := r.State()["messages "+id]; !whole {
			assert.Empty(r.T, r.pushWindow(2, RejectDuplicates, []Message{after(next, 60)}))
			require.NoError(r.T, errOf(r.partition.Cancel(r.Ctx(), "k")))
		}
		assert.Equal(r.T, []any{"cancelled", id, "scheduled"}, call())
		assert.Empty(r.T, r.State())
	})
}
