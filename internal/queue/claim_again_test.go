package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

func TestClaimSentAgainGetsTheSame(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"), due("b"), due("c"))
	request := r.request("c", 2)
	first, err := g.Claim(t.Context(), request)
	require.NoError(t, err)
	before := r.State()

	for range 3 {
		quiet(t) // so the lease starts anew in another millisecond
		again, err := g.Claim(t.Context(), request)
		require.NoError(t, err)
		require.Len(t, again.Messages, 2)
		for i := range first.Messages {
			assert.True(t, again.Messages[i].LeasedUntil.After(first.Messages[i].LeasedUntil))
			again.Messages[i].LeasedUntil = first.Messages[i].LeasedUntil
		}
		assert.Equal(t, first.Messages, again.Messages)
		assert.Equal(t, before, r.State())
	}
	assert.Equal(t, []string{"c#1"}, r.claim(g, "c", 2), "the next request gets the rest")
}

func TestClaimSentAgainLeavesOutMessagesNoLongerHeld(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("acked"), due("held"), due("taken"))
	request := r.request("c", 3)
	require.Len(t, r.claimWith(g, request), 3)
	_, err := g.Ack(t.Context(), done("acked"))
	require.NoError(t, err)
	r.Expire(g.Name(), "taken")
	require.Equal(t, []string{"taken#2/0/1"}, r.claim(g, "d", 3))

	assert.Equal(t, []string{"held#1"}, r.claimWith(g, request))
}

func TestALateClaimTakesNothing(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	old := r.request("c", 3)
	require.Empty(t, r.claimWith(g, old))
	require.Empty(t, r.claim(g, "c", 3))
	r.push(due("a"))
	before := r.State()
	assert.Empty(t, r.claimWith(g, old), "nobody waits for the answer any more")
	assert.Equal(t, before, r.State())
}

func TestClaimForgetsYesterdaysConsumers(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	key := r.partition.Key(script.ClaimsOf, "g")
	yesterday := r.Now().Add(-25 * time.Hour).UnixMilli()
	require.NoError(t, r.Client.HSet(t.Context(), key, "old", fmt.Sprintf("7 %d []", yesterday)).Err())
	r.claim(g, "c", 1)
	fields, err := r.Client.HKeys(t.Context(), key).Result()
	require.NoError(t, err)
	assert.Equal(t, []string{"c"}, fields)
	r.claim(g, "c", 1)
	assert.Positive(t, r.Client.TTL(t.Context(), key).Val())
}
