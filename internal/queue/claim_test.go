package queue

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestClaimMovesWhatIsDueStraightToTheOnlyGroup(t *testing.T) {
	r := newRig(t)
	g := r.group("g")
	r.push(due("a"), after("b", 60))

	claims, err := g.Claim(t.Context(), r.request("c", 10))
	require.NoError(t, err)
	require.Len(t, claims.Messages, 1)
	m := claims.Messages[0]
	assert.Equal(t, "a", m.ID)
	assert.Equal(t, "body a", string(m.Body))
	assert.Equal(t, 1, m.Attempt)
	assert.WithinDuration(t, r.now(), m.DueAt, time.Second)
	assert.WithinDuration(t, r.now().Add(lease), m.LeasedUntil, time.Second)
	assert.InDelta(t, lease, claims.Next, float64(time.Second), "the lease ends before the next message is due")
	assert.Equal(t, map[string]string{
		"groups g":  "member",
		"unack:g a": "now+30s", "messages a": "body a",
		"scheduled b": "now+60s", "messages b": "body b",
	}, r.state())
}

func TestClaimGivesEveryGroupItsOwnDelivery(t *testing.T) {
	r := newRig(t)
	g, h := r.group("g"), r.group("h")
	r.push(due("a"), due("b"), after("c", 60))

	require.Equal(t, []string{"a#1"}, r.claim(g, "c", 1))
	assert.Equal(t, map[string]string{
		"groups g": "member", "groups h": "member",
		"unack:g a": "now+30s", "queue:h a": "now+0s", "messages a": "body a", "refs a": `["g","h"]`,
		"scheduled b": "now+0s", "messages b": "body b",
		"scheduled c": "now+60s", "messages c": "body c",
	}, r.state())
	require.Equal(t, []string{"a#1", "b#1"}, r.claim(h, "d", 10))
	require.Equal(t, []string{"b#1"}, r.claim(g, "c", 10))
}

func TestClaimGivesAGroupThatCameBeforeTheDueTimeTheMessageToo(t *testing.T) {
	r := newRig(t)
	g := r.group("g")
	r.push(Message{ID: "a", Delay: 100 * time.Millisecond})
	assert.Empty(t, r.claim(g, "c", 10))
	h := r.group("h")
	require.Eventually(t, func() bool { return len(r.claim(g, "c", 10)) == 1 }, 5*time.Second, 5*time.Millisecond)
	assert.Equal(t, []string{"a#1"}, r.claim(h, "d", 10))
}

func TestMessagesWaitForTheFirstGroup(t *testing.T) {
	r := newRig(t)
	r.push(due("a"))
	assert.Equal(t, map[string]string{"scheduled a": "now+0s", "messages a": "body a"}, r.state())
	assert.Equal(t, []string{"a#1"}, r.claim(r.group("g"), "c", 10))
}

func TestClaimRegistersAGroupThatWasRemoved(t *testing.T) {
	r := newRig(t)
	g := r.group("g")
	require.NoError(t, r.client.Del(t.Context(), r.partition.names.key(groups)).Err())
	r.push(due("a"))
	assert.Equal(t, []string{"a#1"}, r.claim(g, "c", 10))
	assert.Contains(t, r.state(), "groups g")
}

func TestClaimTakesAnyScoreThatAForeignHandHasSet(t *testing.T) {
	r := newRig(t)
	g := r.group("g")
	r.push(due("a"), due("b"), due("c"))
	scheduled := r.partition.names.key(scheduled)
	require.NoError(t, r.client.ZAdd(t.Context(), scheduled,
		redis.Z{Score: math.Inf(-1), Member: "a"}, redis.Z{Score: -1e300, Member: "b"}, redis.Z{Score: 0.5, Member: "c"},
	).Err())
	claims, err := g.Claim(t.Context(), r.request("c", 10))
	require.NoError(t, err)
	require.Equal(t, []string{"a#1", "b#1", "c#1"}, deliveries(claims))
	var releases []Release
	for _, m := range claims.Messages {
		releases = append(releases, Release{Delivery{m.ID, m.Token}, m.DueAt})
	}
	stale, err := g.Release(t.Context(), releases)
	require.NoError(t, err)
	assert.Empty(t, stale)
	assert.ElementsMatch(t, []string{"a#2/0/0", "b#2/0/0", "c#2/0/0"}, r.claim(g, "c", 10))
}

func TestClaimTakesAGarbledTokenForAFirstDelivery(t *testing.T) {
	r := newRig(t)
	g := r.group("g")
	r.push(due("a"), due("b"))
	require.Len(t, r.claim(g, "c", 2), 2)
	for _, id := range []string{"a", "b"} {
		r.expire(g, id)
	}
	require.NoError(t, r.client.HSet(t.Context(), r.partition.names.keyOf(attemptsOf, "g"), "a", "garbled").Err())
	assert.Equal(t, []string{"a#2/0/1", "b#2/0/1"}, r.claim(g, "d", 2))
}

func TestClaimIsNeverEarly(t *testing.T) {
	r := newRig(t)
	g := r.group("g")
	for i := range 300 {
		r.push(Message{ID: fmt.Sprint(i), Delay: time.Duration(1+i%40) * time.Millisecond})
	}
	for got := 0; got < 300; {
		claims, err := g.Claim(t.Context(), r.request("c", 100))
		now := r.now()
		require.NoError(t, err)
		for _, m := range claims.Messages {
			require.False(t, now.Before(m.DueAt), "claimed %s before it was due", m.DueAt.Sub(now))
		}
		got += len(claims.Messages)
	}
}

func TestClaimOrdersByDueTimeThenByID(t *testing.T) {
	r := newRig(t)
	g := r.group("g")
	r.push(due("c"), due("a"), due("b"))
	require.NoError(t, r.client.ZAdd(t.Context(), r.partition.names.key(scheduled), z(10, "c"), z(20, "b"), z(20, "a")).Err())
	require.NoError(t, r.client.ZAdd(t.Context(), r.partition.names.keyOf(queueOf, "g"), z(15, "retry")).Err())
	require.NoError(t, r.client.HSet(t.Context(), r.partition.names.key(messages), "retry", "x").Err())
	assert.Equal(t, []string{"c#1", "retry#1"}, r.claim(g, "c", 2))
	assert.Equal(t, []string{"a#1", "b#1"}, r.claim(g, "c", 9))
}

func TestClaimReadsNoBodyThatDoesNotFit(t *testing.T) {
	r := newRig(t)
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
	reads := r.watch("HMGET", r.partition.names.key(messages))
	for _, want := range []int{50, 1, 1} {
		assert.Len(t, r.claim(g, "c", len(list)), want)
		read := 0
		for _, ids := range reads() {
			read += len(ids)
		}
		assert.Equal(t, want, read)
	}
}

func TestClaimSentAgainGetsTheSame(t *testing.T) {
	r := newRig(t)
	g := r.group("g")
	r.push(due("a"), due("b"), due("c"))
	request := r.request("c", 2)
	first, err := g.Claim(t.Context(), request)
	require.NoError(t, err)
	before := r.state()

	for range 3 {
		quiet(t) // so that the lease starts anew in another millisecond
		again, err := g.Claim(t.Context(), request)
		require.NoError(t, err)
		require.Len(t, again.Messages, 2)
		for i := range first.Messages {
			assert.True(t, again.Messages[i].LeasedUntil.After(first.Messages[i].LeasedUntil))
			again.Messages[i].LeasedUntil = first.Messages[i].LeasedUntil
		}
		assert.Equal(t, first.Messages, again.Messages)
		assert.Equal(t, before, r.state())
	}
	assert.Equal(t, []string{"c#1"}, r.claim(g, "c", 2), "the next request gets the rest")
}

func TestClaimSentAgainLeavesOutWhatIsNoLongerHeld(t *testing.T) {
	r := newRig(t)
	g := r.group("g")
	r.push(due("acked"), due("held"), due("taken"))
	request := r.request("c", 3)
	require.Len(t, r.claimWith(g, request), 3)
	_, err := g.Ack(t.Context(), done("acked"))
	require.NoError(t, err)
	r.expire(g, "taken")
	require.Equal(t, []string{"taken#2/0/1"}, r.claim(g, "d", 3))

	assert.Equal(t, []string{"held#1"}, r.claimWith(g, request))
}

func TestClaimThatComesLateTakesNothing(t *testing.T) {
	r := newRig(t)
	g := r.group("g")
	old := r.request("c", 3)
	require.Empty(t, r.claimWith(g, old))
	require.Empty(t, r.claim(g, "c", 3))
	r.push(due("a"))
	before := r.state()
	assert.Empty(t, r.claimWith(g, old), "nobody waits for the answer any more")
	assert.Equal(t, before, r.state())
}

func TestClaimTakesExpiredLeasesWithTheNextAttempt(t *testing.T) {
	r := newRig(t)
	g := r.group("g")
	r.push(due("a"), due("b"))
	require.Equal(t, []string{"a#1", "b#1"}, r.claim(g, "c", 10))
	r.expire(g, "a")
	require.Equal(t, []string{"a#2/0/1"}, r.claim(g, "d", 10))
	assert.Equal(t, map[string]string{
		"groups g":  "member",
		"unack:g a": "now+30s", "messages a": "body a", "attempts:g a": "2/0/1",
		"unack:g b": "now+30s", "messages b": "body b",
	}, r.state())
}

func TestClaimBuriesWhatWasDeliveredTooOften(t *testing.T) {
	r := newRig(t)
	g := r.group("g")
	id := keyed(1, "k")
	r.push(due(id), due("good"))
	claim := func(limit int) Claims {
		request := r.request("c", limit)
		request.MaxDeliveries = 1
		claims, err := g.Claim(t.Context(), request)
		require.NoError(t, err)
		return claims
	}
	require.Equal(t, []string{id + "#1"}, deliveries(claim(1)))
	_, err := g.Extend(t.Context(), lease, []Held{handedOut(id, "1")})
	require.NoError(t, err)
	r.expire(g, id)

	claims := claim(10)
	require.Equal(t, []string{"good#1"}, deliveries(claims))
	assert.Equal(t, []Buried{{id, "not acked in 1 deliveries"}}, claims.Buried)
	assert.Equal(t, map[string]string{
		"groups g":     "member",
		"dead:g " + id: "now+0s", "reasons:g " + id: "not acked in 1 deliveries",
		"attempts:g " + id: "1/1/0", "messages " + id: "body " + id,
		"unack:g good": "now+30s", "messages good": "body good",
	}, r.state())
}

// TestAMessageThatKillsItsConsumerBecomesADeadLetter, although nobody can tell whether
// its handlers saw it: after one hand-out more than MaxDeliveries at most.
func TestAMessageThatKillsItsConsumerBecomesADeadLetter(t *testing.T) {
	for max, tokens := range [][]string{1: {"1", "2/0/1"}, 3: {"1", "2/0/1", "3/0/2", "4/0/3"}} {
		if tokens == nil {
			continue
		}
		r := newRig(t)
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
			r.expire(g, "a")
		}
		claims := claim()
		assert.Empty(t, claims.Messages)
		reason := fmt.Sprintf("not acked in 0 deliveries, and lost with its consumer %d times", max)
		assert.Equal(t, []Buried{{"a", reason}}, claims.Buried)
		assert.Equal(t, map[string]string{
			"groups g": "member", "messages a": "body a",
			"dead:g a": "now+0s", "reasons:g a": reason, "attempts:g a": tokens[max],
		}, r.state())
	}
}

// TestWhatIsOnlyHeldAheadDoesNotCountAsDelivered: consumers with one worker claim ten,
// hand out the first and die.
func TestWhatIsOnlyHeldAheadDoesNotCountAsDelivered(t *testing.T) {
	r := newRig(t)
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
			r.expire(g, m.ID)
		}
	}
	assert.Equal(t, 20, buried)
}

func TestClaimTakesWhatWasClaimedBeforeForFreeWorkersOnly(t *testing.T) {
	r := newRig(t)
	g := r.group("g")
	claim := func(limit, free int) Claims {
		request := r.request("c", limit)
		request.Free = free
		claims, err := g.Claim(t.Context(), request)
		require.NoError(t, err)
		return claims
	}
	r.push(due("a"), due("b"), due("c"))
	assert.Equal(t, []string{"a#1", "b#1"}, deliveries(claim(2, 0)), "first claims may be ahead of the workers")
	for _, id := range []string{"a", "b"} {
		r.expire(g, id)
	}
	claims := claim(10, 0)
	assert.Empty(t, claims.Messages, "what comes later does not overtake")
	assert.True(t, claims.NeedsWorker)
	assert.Zero(t, claims.Next)
	before := r.state()
	claims = claim(10, 1)
	assert.Equal(t, []string{"a#2/0/1"}, deliveries(claims))
	assert.True(t, claims.NeedsWorker)
	before["unack:g a"], before["attempts:g a"] = "now+30s", "2/0/1"
	assert.Equal(t, before, r.state())

	nack(t, g, Nack{Delivery: Delivery{"a", "2/0/1"}})
	claims = claim(10, 2)
	assert.Equal(t, []string{"b#2/0/1", "c#1"}, deliveries(claims), "a first claim takes a place as well")
	assert.True(t, claims.NeedsWorker)
	claims = claim(10, 10)
	assert.Equal(t, []string{"a#3/1/1"}, deliveries(claims))
	assert.Equal(t, 2, claims.Messages[0].Attempt)
	assert.Equal(t, int64(3), claims.Messages[0].Fence)
	assert.False(t, claims.NeedsWorker)
	assert.Positive(t, claims.Next)
}

func TestClaimBuriesAMessageWithoutABody(t *testing.T) {
	r := newRig(t)
	g := r.group("g")
	r.push(due("a"), due("b"), due("c"), due("d"))
	require.NoError(t, r.client.HDel(t.Context(), r.partition.names.key(messages), "a", "c").Err())
	request := r.request("c", 10)
	claims, err := g.Claim(t.Context(), request)
	require.NoError(t, err)
	assert.Equal(t, []string{"b#1", "d#1"}, deliveries(claims))
	assert.Equal(t, []Buried{{"a", "message body is missing"}, {"c", "message body is missing"}}, claims.Buried)
	again, err := g.Claim(t.Context(), request)
	require.NoError(t, err)
	assert.Equal(t, claims.Buried, again.Buried, "sent again")
	_, err = g.Requeue(t.Context(), []string{"a"})
	require.NoError(t, err)
	again, err = g.Claim(t.Context(), request)
	require.NoError(t, err)
	assert.Equal(t, []Buried{{"c", "message body is missing"}}, again.Buried, "as far as they still are dead letters")
	require.Empty(t, r.claim(g, "c", 10), "it is buried again")
	assert.Equal(t, map[string]string{
		"groups g": "member",
		"dead:g a": "now+0s", "reasons:g a": "message body is missing", "attempts:g a": "1/0/0",
		"dead:g c": "now+0s", "reasons:g c": "message body is missing",
		"unack:g b": "now+30s", "messages b": "body b",
		"unack:g d": "now+30s", "messages d": "body d",
	}, r.state())
}

func TestClaimStopsAtAFewMegabytes(t *testing.T) {
	r := newRig(t)
	g := r.group("g")
	body := []byte(strings.Repeat("x", 400<<10))
	for i := range 5 {
		r.push(Message{ID: fmt.Sprint(i), Body: body})
	}
	claims, err := g.Claim(t.Context(), r.request("c", 10))
	require.NoError(t, err)
	assert.Equal(t, []string{"0#1", "1#1"}, deliveries(claims), "the third would go beyond")
	assert.Zero(t, claims.Next, "there is more")
	assert.Equal(t, []string{"2#1", "3#1"}, r.claim(g, "c", 10))
}

func TestClaimTellsWhenTheNextIsDue(t *testing.T) {
	r := newRig(t)
	g := r.group("g")
	next := func() time.Duration {
		claims, err := g.Claim(t.Context(), r.request("c", 1))
		require.NoError(t, err)
		require.Empty(t, claims.Messages)
		return claims.Next
	}
	assert.Negative(t, next())
	r.push(after("a", 60))
	assert.InDelta(t, time.Minute, next(), float64(time.Second))
	require.NoError(t, r.client.ZAdd(t.Context(), r.partition.names.keyOf(unackOf, "g"), z(float64(r.now().Add(20*time.Second).UnixMilli()), "b")).Err())
	assert.InDelta(t, 20*time.Second, next(), float64(time.Second))
	require.NoError(t, r.client.ZAdd(t.Context(), r.partition.names.keyOf(queueOf, "g"), z(float64(r.now().Add(10*time.Second).UnixMilli()), "c")).Err())
	assert.InDelta(t, 10*time.Second, next(), float64(time.Second))
}

func TestClaimFailsOnAKeyOfAnotherTypeAndChangesNothing(t *testing.T) {
	for _, kind := range []string{
		"scheduled", "messages", "groups", "refs", "keys", "queue:g", "unack:g",
		"attempts:g", "claims:g", "dead:g", "reasons:g", "changed:g",
	} {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t)
			g := r.group("g")
			r.push(due("a"))
			key := string(r.partition.names) + ":" + kind
			require.NoError(t, r.client.Del(t.Context(), key).Err())
			require.NoError(t, r.client.Set(t.Context(), key, "x", 0).Err())
			before := r.state()
			_, err := g.Claim(t.Context(), r.request("c", 10))
			var typeErr *KeyTypeError
			require.ErrorAs(t, err, &typeErr)
			assert.Equal(t, key, typeErr.Key)
			assert.Equal(t, before, r.state())
		})
	}
}

func TestClaimForgetsConsumersOfYesterday(t *testing.T) {
	r := newRig(t)
	g := r.group("g")
	key := r.partition.names.keyOf(claimsOf, "g")
	yesterday := r.now().Add(-25 * time.Hour).UnixMilli()
	require.NoError(t, r.client.HSet(t.Context(), key, "old", fmt.Sprintf("7 %d []", yesterday)).Err())
	r.claim(g, "c", 1)
	fields, err := r.client.HKeys(t.Context(), key).Result()
	require.NoError(t, err)
	assert.Equal(t, []string{"c"}, fields)
	r.claim(g, "c", 1)
	assert.Positive(t, r.client.TTL(t.Context(), key).Val())
}

func TestAClaimOfAllThatIsDueIsToldToTheOthersOfTheGroup(t *testing.T) {
	r := newRig(t)
	g, h := r.group("a group 2"), r.group("h")
	for _, consumer := range []string{"c", "d"} {
		r.claim(g, consumer, 1) // now known; nothing is due
	}
	others, own, otherGroup := r.listen(g, "d"), r.listen(g, "c"), r.listen(h, "e")
	quiet(t)
	r.push(due("1"), due("2"), after("3", 60))
	for _, next := range []func() Hint{others, own, otherGroup} {
		assert.False(t, next().Looked, "of the push")
	}
	require.Len(t, r.claim(g, "c", 1), 1) // and more is due, so nobody is told
	quiet(t)
	require.Len(t, r.claim(g, "c", 1), 1) // as many as asked for, and all
	hint := others()
	assert.True(t, hint.Looked)
	assert.Equal(t, 1, hint.Found)
	assert.InDelta(t, lease, hint.In, float64(time.Second), "until the leases end")
	ack(t, g, "1", "2")
	quiet(t)
	require.Empty(t, r.claim(g, "c", 1))
	hint = others()
	assert.True(t, hint.Looked)
	assert.Zero(t, hint.Found)
	assert.InDelta(t, time.Minute, hint.In, float64(time.Second))

	r.claim(h, "e", 2)
	nack(t, h, Nack{Delivery: Delivery{"1", "1"}})
	assert.False(t, otherGroup().Looked, "not its own claim, nor those of the other group")
	r.push(due("4"))
	assert.False(t, own().Looked, "a consumer is not told of its own claims")
}

// quiet lets the time pass in which a consumer that claims again tells nobody.
func quiet(t *testing.T) {
	t.Helper()
	<-time.After(5 * time.Millisecond)
}

func TestAConsumerThatIsAloneTellsNobody(t *testing.T) {
	r := newRig(t)
	g := r.group("g")
	r.claim(g, "c", 1)
	next := r.listen(g, "other")
	quiet(t)
	r.claim(g, "c", 1)
	r.push(after("a", 60))
	assert.False(t, next().Looked)
}
