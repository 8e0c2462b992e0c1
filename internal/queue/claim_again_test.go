package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// smaller is a request sent again with a smaller limit.
func smaller(r Request, limit int) Request {
	r.Limit, r.Free = limit, min(limit, r.Free)
	return r
}

// TestASmallerRepeatGivesTheRestBack, and its lease ends as before. Later copies of any size get no more.
func TestASmallerRepeatGivesTheRestBack(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"), due("b"), due("c"))
	request := r.request("c", 3)
	first, err := g.Claim(t.Context(), request)
	require.NoError(t, err)
	require.Len(t, first.Messages, 3)
	again, err := g.Claim(t.Context(), smaller(request, 1))
	require.NoError(t, err)
	assert.Equal(t, []string{"a#1"}, deliveries(again))
	assert.Equal(t, first.Messages[0].LeasedUntil, again.Messages[0].LeasedUntil)
	assert.Zero(t, again.Next)
	want := map[string]string{
		"groups g":  "member",
		"unack:g a": "now+30s", "messages a": "body a",
		"queue:g b": "now+0s", "messages b": "body b", "attempts:g b": "1/0/0",
		"queue:g c": "now+0s", "messages c": "body c", "attempts:g c": "1/0/0",
	}
	assert.Equal(t, want, r.State())
	for _, limit := range []int{3, 1, 2} {
		assert.Equal(t, []string{"a#1"}, r.claimWith(g, smaller(request, limit)))
		assert.Equal(t, want, r.State())
	}
	assert.Equal(t, []string{"b#2/0/0", "c#2/0/0"}, r.claim(g, "d", 3))
	assert.Equal(t, []string{"a#1"}, r.claimWith(g, request), "others have the rest by now")
}

// TestARepeatTakesWhatFitsItsBytes, with metadata of its group, and always one message.
func TestARepeatTakesWhatFitsItsBytes(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"), due("b"), due("c"))
	for _, delivery := range r.claim(g, "c", 3) {
		id, token := delivery[:1], delivery[2:]
		require.NoError(t, errOf3(g.Nack(t.Context(), 0, []Nack{{Delivery: Delivery{id, token}, Metadata: []byte("metadata")}})))
	}
	request := r.request("c", 3)
	require.Len(t, r.claimWith(g, request), 3)
	request.Bytes = 2 * len("body ametadata")
	require.Len(t, r.claimWith(g, request), 2)
	request.Bytes--
	claims, err := g.Claim(t.Context(), request)
	require.NoError(t, err)
	require.Len(t, claims.Messages, 1)
	assert.Equal(t, "metadata", string(claims.Messages[0].Metadata))
	request.Bytes = 1
	assert.Len(t, r.claimWith(g, request), 1)
}

func errOf3[T, U any](_ T, _ U, err error) error { return err }

// TestARepeatAfterItsLeaseGivesAllBack. A message that the consumer cannot fetch comes after those that are due.
func TestARepeatAfterItsLeaseGivesAllBack(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	large := due("a")
	large.Body = make([]byte, 1000)
	r.push(large, due("b"))
	request := r.request("c", 2)
	request.Lease, request.Bytes = 2*time.Millisecond, 5000
	require.Len(t, r.claimWith(g, request), 2)
	r.push(due("c"))
	request.Bytes = 500
	require.Eventually(t, func() bool { return len(r.claimWith(g, request)) == 0 }, 20*time.Second, time.Millisecond)
	assert.Equal(t, map[string]string{
		"groups g":  "member",
		"queue:g a": "now+0s", "messages a": string(large.Body), "attempts:g a": "1/0/0",
		"queue:g b": "now+0s", "messages b": "body b", "attempts:g b": "1/0/0",
		"scheduled c": "now+0s", "messages c": "body c",
	}, r.State())
	assert.Equal(t, []string{"b#2/0/0", "c#1", "a#2/0/0"}, r.claim(g, "d", 3))
}

// TestAMessageGivenBackKeepsItsTurn of its ordering key.
func TestAMessageGivenBackKeepsItsTurn(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	ids := []string{}
	for n, key := range []string{"x", "y", "y"} {
		ids = append(ids, fmt.Sprintf("%026d=1,%s", n, key))
	}
	r.push(due(ids[0]), due(ids[1]), due(ids[2]))
	request := r.request("c", 3)
	require.Equal(t, []string{ids[0] + "#1", ids[1] + "#1"}, r.claimWith(g, request))
	require.Equal(t, []string{ids[0] + "#1"}, r.claimWith(g, smaller(request, 1)))
	assert.Equal(t, ids[1], r.Client.HGet(t.Context(), r.partition.Key(script.TurnsOf, "g"), "1,y").Val())
	assert.Equal(t, []string{ids[1] + "#2/0/0"}, r.claim(g, "d", 3))
}

// TestASmallerRepeatMakesRoomUnderALimit, which the group hears.
func TestASmallerRepeatMakesRoomUnderALimit(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	require.NoError(t, r.Client.HSet(t.Context(), r.partition.Key(script.Settings, ""), "limits:g", "2 0.000000 0 2 {}").Err())
	r.push(due("a"), due("b"), due("c"))
	request := r.request("c", 2)
	require.Len(t, r.claimWith(g, request), 2)
	require.Empty(t, r.claim(g, "d", 2))
	next := r.listen(g, "d")
	require.Len(t, r.claimWith(g, smaller(request, 1)), 1)
	assert.Zero(t, next().In)
	assert.Len(t, r.claim(g, "d", 1), 1)
}
