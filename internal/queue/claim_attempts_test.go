package queue

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

func TestClaimTakesExpiredLeasesWithTheNextAttempt(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"), due("b"))
	require.Equal(t, []string{"a#1", "b#1"}, r.claim(g, "c", 10))
	r.Expire(g.Name(), "a")
	require.Equal(t, []string{"a#2/0/1"}, r.claim(g, "d", 10))
	assert.Equal(t, map[string]string{
		"groups g":  "member",
		"unack:g a": "now+30s", "messages a": "body a", "attempts:g a": "2/0/1",
		"unack:g b": "now+30s", "messages b": "body b",
	}, r.State())
}

// TestAMessageThatKillsItsConsumerBecomesADeadLetter although nobody knows whether its
// handlers saw it. It is handed out at most once more than MaxDeliveries.
func TestAMessageThatKillsItsConsumerBecomesADeadLetter(t *testing.T) {
	for max, tokens := range [][]string{1: {"1", "2/0/1"}, 3: {"1", "2/0/1", "3/0/2", "4/0/3"}} {
		if tokens == nil {
			continue
		}
		r := newScene(t)
		g := r.group("g")
		r.push(due("a"))
		claim := func() Claims {
			request := r.request("c", 1)
			request.MaxDeliveries = max
			claims, err := g.Claim(t.Context(), request)
			require.NoError(t, err)
			return claims
		}
		for _, token := range tokens {
			require.Equal(t, []string{"a#" + token}, deliveries(claim()))
			r.Expire(g.Name(), "a")
		}
		claims := claim()
		assert.Empty(t, claims.Messages)
		reason := fmt.Sprintf("not acked in 0 deliveries, and lost with its consumer %d times", max)
		assert.Equal(t, []Buried{{"a", reason}}, claims.Buried)
		assert.Equal(t, map[string]string{
			"groups g": "member", "messages a": "body a",
			"dead:g a": "now+0s", "reasons:g a": reason, "attempts:g a": tokens[max],
		}, r.State())
	}
}

// TestAMessageOnlyHeldAheadDoesNotCountAsDelivered has consumers with one worker claim ten
// messages, hand out the first and die.
func TestAMessageOnlyHeldAheadDoesNotCountAsDelivered(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	for i := range 20 {
		r.push(due(fmt.Sprintf("%02d", i)))
	}
	handedOut, buried := map[string]int{}, 0
	for range 500 {
		request := r.request("c", 10)
		request.Free, request.MaxDeliveries = 1, 3
		claims, err := g.Claim(t.Context(), request)
		require.NoError(t, err)
		for _, b := range claims.Buried {
			buried++
			require.GreaterOrEqual(t, handedOut[b.ID], 3, "%s: %s", b.ID, b.Reason)
			require.LessOrEqual(t, handedOut[b.ID], 4)
		}
		for i, m := range claims.Messages {
			if i == 0 {
				handedOut[m.ID]++
			}
			r.Expire(g.Name(), m.ID)
		}
	}
	assert.Equal(t, 20, buried)
}

func TestClaimBuriesAMessageWithoutABody(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"), due("b"), due("c"), due("d"))
	require.NoError(t, r.Client.HDel(t.Context(), r.partition.Key(script.Messages, ""), "a", "c").Err())
	request := r.request("c", 10)
	claims, err := g.Claim(t.Context(), request)
	require.NoError(t, err)
	assert.Equal(t, []string{"b#1", "d#1"}, deliveries(claims))
	assert.Equal(t, []Buried{{"a", "message body is missing"}, {"c", "message body is missing"}}, claims.Buried)
	again, err := g.Claim(t.Context(), request)
	require.NoError(t, err)
	assert.Equal(t, claims.Buried, again.Buried, "sent again")
	_, err = Requeue(t.Context(), g, ever, []string{"a"})
	require.NoError(t, err)
	again, err = g.Claim(t.Context(), request)
	require.NoError(t, err)
	assert.Equal(t, []Buried{{"c", "message body is missing"}}, again.Buried, "only those that are still dead letters")
	require.Empty(t, r.claim(g, "c", 10), "it is buried again")
	assert.Equal(t, map[string]string{
		"groups g": "member",
		"dead:g a": "now+0s", "reasons:g a": "message body is missing", "attempts:g a": "1/0/0",
		"dead:g c": "now+0s", "reasons:g c": "message body is missing",
		"unack:g b": "now+30s", "messages b": "body b",
		"unack:g d": "now+30s", "messages d": "body d",
	}, r.State())
}
