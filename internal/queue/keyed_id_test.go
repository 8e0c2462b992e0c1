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
	eachStanding(t, func(r *scene, name, id string, want Standing) {
		got, err := r.partition.CancelID(r.ctx(), id)
		assert.Equal(r.t, standings[name].cancel, err)
		assert.Equal(r.t, want, got)
		left := map[string]string{"groups g": "member", "groups h": "member"}
		for field, value := range standings[name].afterCancel {
			left[strings.ReplaceAll(field, "%s", id)] = strings.ReplaceAll(value, "%s", id)
		}
		assert.Equal(r.t, left, r.state())
	})
}

// TestByItsIDAMessageIsRescheduledAsByItsKey and to the millisecond, as often as it is called.
func TestByItsIDAMessageIsRescheduledAsByItsKey(t *testing.T) {
	eachStanding(t, func(r *scene, name, id string, want Standing) {
		due := r.now().UnixMilli() + 3_600_000
		state := r.state()
		for key := range state {
			set, member, _ := strings.Cut(key, " ")
			if member == id && (set == "scheduled" || strings.HasPrefix(set, "queue:")) {
				state[key] = "now+3600s"
			}
		}
		for range 2 {
			got, err := r.partition.RescheduleID(r.ctx(), id, due)
			assert.Equal(r.t, standings[name].reschedule, err)
			assert.Equal(r.t, want, got)
			assert.Equal(r.t, state, r.state())
		}
		if want.Scheduled {
			assert.Equal(r.t, float64(due), r.client.ZScore(r.ctx(), r.partition.Key(script.Scheduled, ""), id).Val())
			_, err := r.partition.RescheduleAt(r.ctx(), "k", due+1)
			require.NoError(r.t, err)
			assert.Equal(r.t, float64(due+1), r.client.ZScore(r.ctx(), r.partition.Key(script.Scheduled, ""), id).Val())
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
	want := r.state()
	require.Contains(t, want, "taken k")
	delete(want, "unack:h "+first)
	want["refs "+first] = `["g"]`
	standing, err := r.partition.CancelID(t.Context(), first)
	require.NoError(t, err)
	assert.Equal(t, StateInDelivery, standing.Groups["h"])
	assert.Equal(t, want, r.state())
	require.NoError(t, errOf(r.partition.CancelID(t.Context(), second)))
	assert.NotContains(t, r.state(), "taken k", "the holder's window ends with it")
	assert.NotContains(t, r.state(), "keys k")
}
