package queue

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

func TestClaimAcceptsAnyScoreThatAnotherProgramWrote(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"), due("b"), due("c"))
	scheduled := r.partition.Key(script.Scheduled, "")
	require.NoError(t, r.Client.ZAdd(t.Context(), scheduled,
		redis.Z{Score: math.Inf(-1), Member: "a"}, redis.Z{Score: -1e300, Member: "b"}, redis.Z{Score: 0.5, Member: "c"},
	).Err())
	claims, err := g.Claim(t.Context(), r.request("c", 10))
	require.NoError(t, err)
	require.Equal(t, []string{"a#1", "b#1", "c#1"}, deliveries(claims))
	var releases []Release
	for _, m := range claims.Messages {
		releases = append(releases, Release{Delivery{m.ID, m.Receipt}, m.DueAt, 0})
	}
	stale, err := g.Release(t.Context(), releases)
	require.NoError(t, err)
	assert.Empty(t, stale)
	assert.ElementsMatch(t, []string{"a#2/0/0", "b#2/0/0", "c#2/0/0"}, r.claim(g, "c", 10))
}

func TestClaimTreatsAGarbledEntryAsAFirstDelivery(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"), due("b"))
	require.Len(t, r.claim(g, "c", 2), 2)
	for _, id := range []string{"a", "b"} {
		r.Expire(g.Name(), id)
	}
	require.NoError(t, r.Client.HSet(t.Context(), r.partition.Key(script.AttemptsOf, "g"), "a", "garbled").Err())
	assert.Equal(t, []string{"a#2/0/1", "b#2/0/1"}, r.claim(g, "d", 2))
}

func TestClaimIsNeverEarly(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	for i := range 300 {
		r.push(Message{ID: fmt.Sprint(i), Delay: time.Duration(1+i%40) * time.Millisecond})
	}
	for got := 0; got < 300; {
		claims, err := g.Claim(t.Context(), r.request("c", 100))
		now := r.Now()
		require.NoError(t, err)
		for _, m := range claims.Messages {
			require.False(t, now.Before(m.DueAt), "claimed %s before it was due", m.DueAt.Sub(now))
		}
		got += len(claims.Messages)
	}
}

func TestADuplicateFromATornFileIsDeliveredOnce(t *testing.T) {
	for name, score := range map[string]float64{"with one due time": 3, "earlier in the queue": 1, "later in the queue": 5} {
		t.Run(name, func(t *testing.T) {
			r := newScene(t)
			g := r.group("g")
			scheduled, queue := r.partition.Key(script.Scheduled, ""), r.partition.Key(script.QueueOf, "g")
			r.push(due("a"), due("b"), due("c"))
			require.NoError(t, r.Client.ZAdd(t.Context(), scheduled, z(2, "a"), z(3, "b"), z(4, "c")).Err())
			require.NoError(t, r.Client.ZAdd(t.Context(), queue, z(score, "b")).Err())
			assert.ElementsMatch(t, []string{"a#1", "b#1", "c#1"}, r.claim(g, "c", 9))
			assert.Zero(t, r.Client.Exists(t.Context(), scheduled, queue).Val())
		})
	}
}

func TestClaimReadsOnlyBodiesThatFit(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	var list []Message
	for i := range 60 {
		m := due(fmt.Sprintf("%03d", i))
		if i >= 50 {
			m.Body = make([]byte, 4_000_000)
		}
		list = append(list, m)
	}
	for _, m := range list {
		r.push(m)
	}
	reads := r.Watch("HMGET", r.partition.Key(script.Messages, ""))
	for _, want := range []int{50, 1, 1} {
		assert.Len(t, r.claim(g, "c", len(list)), want)
		read := 0
		for _, ids := range reads() {
			read += len(ids)
		}
		assert.Equal(t, want, read)
	}
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
	_, err = Requeue(t.Context(), g, []string{"a"}, ever)
	require.NoError(t, err)
	again, err = g.Claim(t.Context(), request)
	require.NoError(t, err)
	assert.Equal(t, []Buried{{"c", "message body is missing"}}, again.Buried, "only those that are still dead messages")
	require.Empty(t, r.claim(g, "c", 10), "it is buried again")
	assert.Equal(t, map[string]string{
		"groups g": "member",
		"dead:g a": "now+0s", "reasons:g a": "message body is missing", "attempts:g a": "1/0/0",
		"dead:g c": "now+0s", "reasons:g c": "message body is missing",
		"unack:g b": "now+30s", "messages b": "body b",
		"unack:g d": "now+30s", "messages d": "body d",
	}, r.StateFromNow())
}
