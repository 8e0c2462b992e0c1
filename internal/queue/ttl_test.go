package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// living is an id that carries a time to live in seconds.
func living(name string, seconds int) string { return fmt.Sprintf("%-26s~%d", name, seconds*1000) }

// TestATimeToLiveCountsFromTheDueTime, whatever has become of the message since.
func TestATimeToLiveCountsFromTheDueTime(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	id := living("a", 300)
	r.push(due(id))
	start := r.Now()
	number := 0
	claim := func() Claimed {
		number++
		claims, err := g.Claim(t.Context(), r.request(fmt.Sprint("c", number), 10))
		require.NoError(t, err)
		require.Len(t, claims.Messages, 1)
		return claims.Messages[0]
	}
	ends := func(c Claimed, after time.Duration) {
		t.Helper()
		assert.WithinDuration(t, start.Add(after), c.ExpiresAt, time.Second)
	}
	first := claim()
	ends(first, 300*time.Second)
	assert.Equal(t, 1, first.Attempt)
	_, err := g.Extend(t.Context(), Heartbeat{Consumer: "c1", Lease: lease}, []Held{handedOut(id, first.Token)})
	require.NoError(t, err)
	r.Expire("g", id)
	lost := claim()
	ends(lost, 300*time.Second)
	assert.Equal(t, 2, lost.Attempt)
	_, _, err = g.Nack(t.Context(), 0, []Nack{{Delivery: Delivery{ID: id, Token: lost.Token}}})
	require.NoError(t, err)
	retry := claim()
	ends(retry, 300*time.Second)
	_, err = g.Release(t.Context(), []Release{{Delivery: Delivery{ID: id, Token: retry.Token}, DueAt: retry.DueAt}})
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprintf("3/2/0/%d", first.DueAt.UnixMilli()), r.State()["attempts:g "+id])
	_, err = r.partition.RescheduleID(t.Context(), id, r.Now().Add(-10*time.Second).UnixMilli())
	require.NoError(t, err)
	ends(claim(), 290*time.Second)
}
