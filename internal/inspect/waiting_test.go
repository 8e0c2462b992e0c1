package inspect

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// seen lists messages as they are scheduled.
func (r *scene) seen(key string, ids ...string) (list []Seen) {
	r.T.Helper()
	for _, id := range ids {
		score, err := r.Client.ZScore(r.Ctx(), key, id).Result()
		require.NoError(r.T, err, id)
		list = append(list, Seen{id, fmt.Sprintf("%.0f", score)})
	}
	return list
}

// cancelScheduled cancels messages and returns those that are left.
func (r *scene) cancelScheduled(seen ...Seen) []string {
	r.T.Helper()
	left, err := CancelScheduled(r.Ctx(), r.partition, seen)
	require.NoError(r.T, err)
	return left
}

func TestWithdrawFreesLargeMessagesInSeveralCalls(t *testing.T) {
	r := newScene(t)
	ids := r.Store(r.partition.Key(script.Scheduled, ""), 40, 1<<20)
	calls := r.Watch("ZMSCORE", r.partition.Key(script.Scheduled, ""))
	left, err := CancelScheduled(t.Context(), r.partition, r.seen(r.partition.Key(script.Scheduled, ""), ids...))
	require.NoError(t, err)
	assert.Empty(t, left)
	assert.Empty(t, r.State())
	assert.Len(t, calls(), 2)
}

// TestRetimeMovesMessagesScheduledForTheMaximumTime: such a score marks a message that waits for its ordering key only in a
// queue.
func TestRetimeMovesMessagesScheduledForTheMaximumTime(t *testing.T) {
	r := newScene(t)
	r.importMessages(ImportedMessage{ID: plainID(1), DueAt: time.UnixMilli(script.InLine), Body: []byte("x")})
	due := r.Now().Add(time.Hour).UnixMilli()
	left, err := RescheduleWaiting(t.Context(), r.group("g"), InScheduled, due, []Seen{{plainID(1), strconv.FormatInt(script.InLine, 10)}})
	require.NoError(t, err)
	assert.Empty(t, left)
	assert.InDelta(t, due, r.Client.ZScore(t.Context(), r.partition.Key(script.Scheduled, ""), plainID(1)).Val(), 0)
}

// TestAKeyOfTheWrongTypeIsAnErrorWithoutChanges: the error names the key, and all other keys are unchanged.
func TestAKeyOfTheWrongTypeIsAnErrorWithoutChanges(t *testing.T) {
	for kinds, call := range map[string]func(r *scene, g *queue.Group) error{
		"scheduled messages keys dedup": func(r *scene, _ *queue.Group) error {
			return errOf(CancelScheduled(r.Ctx(), r.partition, []Seen{{"a", "1"}}))
		},
		"queue:g": func(r *scene, g *queue.Group) error {
			return errOf(RescheduleWaiting(r.Ctx(), g, InQueue, 1, []Seen{{"a", "1"}}))
		},
		"refs": func(r *scene, _ *queue.Group) error { return errOf(groupsInRefs(r.Ctx(), r.partition)) },
		"scheduled messages keys dedup imported": func(r *scene, _ *queue.Group) error {
			return errOf(Import(r.Ctx(), r.partition, []ImportedMessage{r.imported(keyed(3, "m"), 60)}))
		},
	} {
		for _, kind := range strings.Fields(kinds) {
			t.Run(kinds+"/"+kind, func(t *testing.T) {
				r := newScene(t)
				g := r.group("g")
				r.push(due("a"))
				require.NoError(t, r.Client.ZAdd(t.Context(), r.partition.Key(script.Scheduled, ""), z(1, "a")).Err())
				require.NoError(t, r.Client.ZAdd(t.Context(), r.partition.Key(script.QueueOf, "g"), z(1, "a")).Err())
				r.FailsOnType(kind, func() error { return call(r, g) })
			})
		}
	}
}

func TestWithdrawLeavesAKeyToItsCurrentHolder(t *testing.T) {
	r := newScene(t)
	first, second := keyed(1, "k"), keyed(2, "k")
	r.push(after(first, 60))
	require.NoError(t, r.Client.HDel(t.Context(), r.partition.Key(script.MessageKeys, ""), "k").Err())
	require.Empty(t, r.pushWindow(1<<41, queue.RejectDuplicates, []queue.Message{after(second, 60)}))
	want := r.State()
	delete(want, "scheduled "+first)
	delete(want, "messages "+first)
	left, err := CancelScheduled(t.Context(), r.partition, r.seen(r.partition.Key(script.Scheduled, ""), first))
	require.NoError(t, err)
	assert.Empty(t, left)
	assert.Equal(t, want, r.State())
}

// TestATornWithdrawalReleasesItsKey: a repeated call finishes it.
func TestATornWithdrawalReleasesItsKey(t *testing.T) {
	id := keyed(1, "k")
	var seen []Seen
	cancel := func(r *scene) {
		require.NoError(r.T, errOf(CancelScheduled(r.Ctx(), r.partition, seen)))
	}
	arrange := func(r *scene) {
		require.Empty(r.T, r.pushWindow(1<<41, queue.RejectDuplicates, []queue.Message{after(id, 60)}))
		seen = r.seen(r.partition.Key(script.Scheduled, ""), id)
		cancel(r)
	}
	tornEverywhere(t, "cancel_scheduled", arrange, func(r *scene) {
		r.Reload()
		if state := r.State(); state["messages "+id] == "" {
			require.ErrorIs(r.T, errOf(newStore(r.T, r.Client).Topic(r.partition.Topic()).Reschedule(r.Ctx(), "k", 0)), queue.ErrNotFound)
		}
		cancel(r)
		assert.Empty(r.T, r.State())
	})
}
