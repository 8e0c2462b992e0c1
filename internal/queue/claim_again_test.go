package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

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
