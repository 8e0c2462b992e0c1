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

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

func TestClaimMovesDueMessagesStraightToTheOnlyGroup(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"), after("b", 60))

	claims, err := g.Claim(t.Context(), r.request("c", 10))
	require.NoError(t, err)
	require.Len(t, claims.Messages, 1)
	m := claims.Messages[0]
	assert.Equal(t, "a", m.ID)
	assert.Equal(t, "body a", string(m.Body))
	assert.Equal(t, 1, m.Attempt)
	assert.WithinDuration(t, r.Now(), m.DueAt, 10*time.Second)
	assert.WithinDuration(t, r.Now().Add(lease), m.LeasedUntil, 10*time.Second)
	assert.InDelta(t, lease, claims.Next, float64(time.Second), "the lease ends before the next message is due")
	assert.Equal(t, map[string]string{
		"groups g":  "member",
		"unack:g a": "now+30s", "messages a": "body a",
		"scheduled b": "now+60s", "messages b": "body b",
	}, r.State())
}

func TestAGroupRegisteredBeforeTheDueTimeGetsTheMessageToo(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(after("a", 60))
	assert.Empty(t, r.claim(g, "c", 10))
	h := r.group("h")
	now := z(float64(r.Now().UnixMilli()), "a")
	require.NoError(t, r.Client.ZAddXX(t.Context(), r.partition.Key(script.Scheduled, ""), now).Err())
	assert.Equal(t, []string{"a#1"}, r.claim(g, "c", 10))
	assert.Equal(t, []string{"a#1"}, r.claim(h, "d", 10))
}

func TestMessagesWaitForTheFirstGroup(t *testing.T) {
	r := newScene(t)
	r.push(due("a"))
	assert.Equal(t, map[string]string{"scheduled a": "now+0s", "messages a": "body a"}, r.State())
	assert.Equal(t, []string{"a#1"}, r.claim(r.group("g"), "c", 10))
}

func TestClaimRegistersAGroupThatWasRemoved(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	require.NoError(t, r.Client.Del(t.Context(), r.partition.Key(script.Groups, "")).Err())
	r.push(due("a"))
	assert.Equal(t, []string{"a#1"}, r.claim(g, "c", 10))
	assert.Contains(t, r.State(), "groups g")
}

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
		releases = append(releases, Release{Delivery{m.ID, m.Token}, m.DueAt, 0})
	}
	stale, err := g.Release(t.Context(), releases)
	require.NoError(t, err)
	assert.Empty(t, stale)
	assert.ElementsMatch(t, []string{"a#2/0/0", "b#2/0/0", "c#2/0/0"}, r.claim(g, "c", 10))
}

// TestAFractionOfAMillisecondIsNoNegativeWait: less than a millisecond is left, and the next is not due by the clock in ms.
func TestAFractionOfAMillisecondIsNoNegativeWait(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	scheduled := r.partition.Key(script.Scheduled, "")
	for n := range 20 {
		id := fmt.Sprint(n)
		r.push(after(id, 60))
		soon := float64(r.Now().UnixMilli()+3) + 0.001
		require.NoError(t, r.Client.ZAdd(t.Context(), scheduled, redis.Z{Score: soon, Member: id}).Err())
		for got := 0; got == 0; {
			claims, err := g.Claim(t.Context(), r.request("c", 1))
			require.NoError(t, err)
			assert.GreaterOrEqual(t, claims.Next, time.Duration(0))
			got = len(claims.Messages)
			require.NoError(t, errOf(g.Ack(t.Context(), done(id))))
		}
	}
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

func TestClaimOrdersByDueTimeThenByID(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("c"), due("a"), due("b"))
	require.NoError(t, r.Client.ZAdd(t.Context(), r.partition.Key(script.Scheduled, ""), z(10, "c"), z(20, "b"), z(20, "a")).Err())
	require.NoError(t, r.Client.ZAdd(t.Context(), r.partition.Key(script.QueueOf, "g"), z(15, "retry")).Err())
	require.NoError(t, r.Client.HSet(t.Context(), r.partition.Key(script.Messages, ""), "retry", "x").Err())
	assert.Equal(t, []string{"c#1", "retry#1"}, r.claim(g, "c", 2))
	assert.Equal(t, []string{"a#1", "b#1"}, r.claim(g, "c", 9))
}

func TestTheOnlyGroupGetsWhatIsInItsQueueAndWhatIsNewInOneOrder(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	scheduled, queue := r.partition.Key(script.Scheduled, ""), r.partition.Key(script.QueueOf, "g")
	r.push(due("a"), due("c"), due("e"), due("f"), due("b"), due("d"))
	require.NoError(t, r.Client.ZAdd(t.Context(), scheduled, z(1, "a"), z(3, "c"), z(5, "e"), z(6, "f")).Err())
	require.NoError(t, r.Client.ZRem(t.Context(), scheduled, "b", "d").Err())
	require.NoError(t, r.Client.ZAdd(t.Context(), queue, z(2, "b"), z(4, "d")).Err())

	assert.Equal(t, []string{"a#1", "b#1", "c#1"}, r.claim(g, "c", 3))
	assert.Equal(t, []string{"e", "f"}, r.Client.ZRange(t.Context(), scheduled, 0, -1).Val(), "what the claim has not taken stays where it was")
	assert.Equal(t, []string{"d"}, r.Client.ZRange(t.Context(), queue, 0, -1).Val())
	require.NoError(t, r.Client.ZAdd(t.Context(), queue, z(7, "g")).Err())
	require.NoError(t, r.Client.HSet(t.Context(), r.partition.Key(script.Messages, ""), "g", "x").Err())
	assert.Equal(t, []string{"d#1", "e#1", "f#1", "g#1"}, r.claim(g, "c", 9))
	assert.Zero(t, r.Client.Exists(t.Context(), scheduled, queue).Val())
}

func TestWhatATornFileLeftInTheQueueAndInScheduledIsDeliveredOnce(t *testing.T) {
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

func TestClaimReadsNoBodyThatDoesNotFit(t *testing.T) {
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

func TestClaimStopsAtAFewMegabytes(t *testing.T) {
	r := newScene(t)
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

func TestClaimSaysWhenTheNextMessageIsDue(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	next := func() time.Duration {
		claims, err := g.Claim(t.Context(), r.request("c", 1))
		require.NoError(t, err)
		require.Empty(t, claims.Messages)
		return claims.Next
	}
	assert.Negative(t, next())
	r.push(after("a", 60))
	assert.InDelta(t, time.Minute, next(), float64(4*time.Second))
	require.NoError(t, r.Client.ZAdd(t.Context(), r.partition.Key(script.UnackOf, "g"), z(float64(r.Now().Add(20*time.Second).UnixMilli()), "b")).Err())
	assert.InDelta(t, 20*time.Second, next(), float64(4*time.Second))
	require.NoError(t, r.Client.ZAdd(t.Context(), r.partition.Key(script.QueueOf, "g"), z(float64(r.Now().Add(10*time.Second).UnixMilli()), "c")).Err())
	assert.InDelta(t, 10*time.Second, next(), float64(4*time.Second))
}

// TestClaimFailsOnAKeyOfAnotherTypeAndChangesNothing, also when nothing is due.
func TestClaimFailsOnAKeyOfAnotherTypeAndChangesNothing(t *testing.T) {
	for _, kind := range []string{
		"scheduled", "messages", "groups", "refs", "keys", "queue:g", "unack:g",
		"attempts:g", "claims:g", "dead:g", "reasons:g", "nack_metadata:g", "settings", "at_limit",
	} {
		for name, message := range map[string]Message{"due": due("a"), "idle": after("a", 60)} {
			t.Run(kind+", "+name, func(t *testing.T) {
				r := newScene(t)
				g := r.group("g")
				if name == "idle" {
					require.Empty(t, r.claim(g, "c", 10), "an earlier claim")
				}
				r.push(message)
				key := string(r.partition.Names) + ":" + kind
				require.NoError(t, r.Client.Del(t.Context(), key).Err())
				require.NoError(t, r.Client.Set(t.Context(), key, "x", 0).Err())
				before := r.State()
				_, err := g.Claim(t.Context(), r.request("c", 10))
				var typeErr *script.KeyTypeError
				require.ErrorAs(t, err, &typeErr)
				assert.Equal(t, key, typeErr.Key)
				assert.Equal(t, before, r.State())
			})
		}
	}
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
	_, err = Requeue(t.Context(), g, []string{"a"}, ever)
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
