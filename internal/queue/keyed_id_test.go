package queue

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// TestByItsIDAMessageIsCancelledAsByItsKey wherever it is.
func TestByItsIDAMessageIsCancelledAsByItsKey(t *testing.T) {
	eachStatus(t, func(r *scene, name, id string, want Status) {
		got, err := r.partition.CancelID(r.Ctx(), id)
		assert.Equal(r.T, statuses[name].cancel, err)
		assert.Equal(r.T, want, got)
		left := map[string]string{"groups g": "member", "groups h": "member"}
		for field, value := range statuses[name].afterCancel {
			left[strings.ReplaceAll(field, "%s", id)] = strings.ReplaceAll(value, "%s", id)
		}
		assert.Equal(r.T, left, r.State())
	})
}

// TestByItsIDAMessageIsRescheduledAsByItsKey and to the millisecond, as often as it is called.
func TestByItsIDAMessageIsRescheduledAsByItsKey(t *testing.T) {
	eachStatus(t, func(r *scene, name, id string, want Status) {
		due := r.Now().UnixMilli() + 3_600_000
		state := r.State()
		for key := range state {
			set, member, _ := strings.Cut(key, " ")
			if member == id && (set == "scheduled" || strings.HasPrefix(set, "queue:")) {
				state[key] = "now+3600s"
			}
		}
		for range 2 {
			got, err := r.partition.RescheduleID(r.Ctx(), id, due)
			assert.Equal(r.T, statuses[name].reschedule, err)
			assert.Equal(r.T, want, got)
			assert.Equal(r.T, state, r.State())
		}
		if want.Scheduled {
			assert.Equal(r.T, float64(due), r.Client.ZScore(r.Ctx(), r.partition.Key(script.Scheduled, ""), id).Val())
			_, err := r.partition.RescheduleAt(r.Ctx(), "k", due+1)
			require.NoError(r.T, err)
			assert.Equal(r.T, float64(due+1), r.Client.ZScore(r.Ctx(), r.partition.Key(script.Scheduled, ""), id).Val())
		}
	})
}

// TestAMessageThatLostItsKeyIsCancelledWithoutTheNextHolder and its window.
func TestAMessageThatLostItsKeyIsCancelledWithoutTheNextHolder(t *testing.T) {
	r := newScene(t)
	g, h := r.group("g"), r.group("h")
	first, second := keyed(1, "k"), keyed(2, "k")
	r.push(due(first))
	r.bury(g, first)
	r.claim(h, "c", 1)
	refused := r.pushWindow(1<<41, RejectDuplicates, []Message{after(second, 60)})
	require.Empty(t, refused)
	want := r.State()
	require.Contains(t, want, "taken k")
	delete(want, "unack:h "+first)
	want["refs "+first] = `["g"]`
	status, err := r.partition.CancelID(t.Context(), first)
	require.NoError(t, err)
	assert.Equal(t, StateInDelivery, status.Groups["h"])
	assert.Equal(t, want, r.State())
	require.NoError(t, errOf(r.partition.CancelID(t.Context(), second)))
	assert.NotContains(t, r.State(), "taken k", "the holder's window ends with it")
	assert.NotContains(t, r.State(), "keys k")
}
