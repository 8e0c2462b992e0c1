package queue

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

func TestNackMakesTheMessageDueAgainLater(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"), due("b"))
	r.claim(g, "c", 10)
	nack(t, g, Nack{Delivery: Delivery{"a", "1"}, Delay: time.Minute}, Nack{Delivery: Delivery{"b", "1"}, Metadata: []byte("new")})
	assert.Equal(t, map[string]string{
		"groups g":  "member",
		"queue:g a": "now+60s", "attempts:g a": "1/1/0", "messages a": "body a",
		"queue:g b": "now+0s", "attempts:g b": "1/1/0", "messages b": "body b", "nack_metadata:g b": "new",
	}, r.State())
	assert.Equal(t, []string{"b#2/1/1"}, r.claim(g, "c", 10))
}

func nack(t *testing.T, g *Group, nacks ...Nack) {
	t.Helper()
	stale, _, err := g.Nack(t.Context(), 0, nacks)
	require.NoError(t, err)
	require.Empty(t, stale)
}

// TestMetadataOutlivesTheRegistrationOfOtherGroups since it does not depend on how many
// groups there are.
func TestMetadataOutlivesTheRegistrationOfOtherGroups(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.group("h")
	r.push(due("a"))
	r.claim(g, "c", 1)
	nack(t, g, Nack{Delivery: Delivery{"a", "1"}, Metadata: []byte("changed")})
	require.NoError(t, r.Client.SRem(t.Context(), r.partition.Key(script.Groups, ""), "h").Err())
	claims, err := g.Claim(t.Context(), r.request("c", 1))
	require.NoError(t, err)
	require.Len(t, claims.Messages, 1)
	assert.Equal(t, "changed", string(claims.Messages[0].Metadata))
}

func TestNackDistinguishesDeliveriesFromLosses(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"))
	for _, token := range []string{"1", "2/0/1", "3/0/2"} {
		require.Equal(t, []string{"a#" + token}, r.claim(g, "c", 1))
		if token != "3/0/2" {
			r.Expire(g.Name(), "a")
		}
	}
	_, buried, err := g.Nack(t.Context(), 2, []Nack{{Delivery: Delivery{"a", "3/0/2"}}})
	require.NoError(t, err)
	assert.Equal(t, []Buried{{"a", "not acked in 1 deliveries, and lost with its consumer 1 times"}}, buried)
}

// TestWhatWentWrongFollowsTheReasonOfTheLastDelivery whatever is in it, and changes nothing of a retry,
// a deferral or a burial by the handler.
func TestWhatWentWrongFollowsTheReasonOfTheLastDelivery(t *testing.T) {
	const trouble = "500 smtp:\n 550 %d \x00 full "
	tests := map[string]struct {
		max   int
		nack  Nack
		want  []Buried
		state map[string]string
	}{
		"the last":   {1, Nack{}, []Buried{{"a", "not acked in 1 deliveries: " + trouble}}, map[string]string{"dead:g a": "now+0s"}},
		"a retry":    {2, Nack{Delay: time.Minute}, nil, map[string]string{"queue:g a": "now+60s"}},
		"a burial":   {1, Nack{Reason: "never"}, []Buried{{"a", "never"}}, map[string]string{"dead:g a": "now+0s"}},
		"a deferral": {1, Nack{Deferred: true, Delay: time.Minute}, nil, map[string]string{"queue:g a": "now+60s"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newScene(t)
			g := r.group("g")
			r.push(due("a"))
			r.claim(g, "c", 1)
			test.nack.Delivery, test.nack.Error = Delivery{"a", "1"}, trouble
			_, buried, err := g.Nack(t.Context(), test.max, []Nack{test.nack})
			require.NoError(t, err)
			assert.Equal(t, test.want, buried)
			state := r.State()
			for key, want := range test.state {
				assert.Equal(t, want, state[key], key)
			}
			if _, again, err := g.Nack(t.Context(), test.max, []Nack{test.nack}); test.want != nil {
				require.NoError(t, err)
				assert.Equal(t, test.want, again, "its reply was lost")
			}
		})
	}
}

func TestADeferralKeepsItsTimeAndMetadata(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	id := keyed(1, "k")
	r.push(due(id))
	r.claim(g, "c", 1)
	next := r.listen(g, "d")
	deferral := Nack{Delivery: Delivery{id, "1"}, Delay: time.Minute, Metadata: []byte("new"), Deferred: true}
	nack(t, g, deferral)
	assert.InDelta(t, time.Minute, next().In, float64(time.Second))
	want := map[string]string{
		"groups g": "member", "messages " + id: "body " + id, "keys k": id,
		"queue:g " + id: "now+60s", "attempts:g " + id: "1/0/0", "nack_metadata:g " + id: "new",
	}
	assert.Equal(t, want, r.State())
	stale, buried, err := g.Nack(t.Context(), 1, []Nack{deferral})
	require.NoError(t, err)
	assert.Equal(t, []string{id}, stale, "a deferral sent again changes nothing")
	assert.Empty(t, buried)
	assert.Equal(t, want, r.State())
}

// TestManyNacksOfAllKindsGoOutTogether although their reasons need several calls.
func TestManyNacksOfAllKindsGoOutTogether(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	ids := r.Store(r.partition.Key(script.UnackOf, "g"), 1500, 10)
	var nacks []Nack
	for i, id := range ids {
		n := Nack{Delivery: Delivery{id, "1"}, Delay: time.Hour}
		switch i % 3 {
		case 0:
			n.Deferred = true
		case 1:
			n.Reason = strings.Repeat("r", 2000)
		}
		nacks = append(nacks, n)
	}
	evals := r.Watch("ZREM", r.partition.Key(script.UnackOf, "g"))
	stale, buried, err := g.Nack(t.Context(), 0, nacks)
	require.NoError(t, err)
	assert.Empty(t, stale)
	assert.Len(t, buried, 500)
	entries := r.Client.HVals(t.Context(), r.partition.Key(script.AttemptsOf, "g")).Val()
	counts := map[string]int{}
	for _, entry := range entries {
		counts[entry]++
	}
	assert.Equal(t, map[string]int{"1/0/0": 500, "1/1/0": 1000}, counts)
	begun := 0
	for _, use := range evals() {
		if use[0] == `""` {
			begun++
		}
	}
	assert.Equal(t, 2, begun, "calls")
}

func TestAPersonBuriesWhatWaitsAndWhatIsInDelivery(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	held, waits, planned, dead := keyed(1, "held"), "waits", "planned", "dead"
	r.push(due(held), due(waits), due(dead))
	require.Len(t, r.claim(g, "c", 3), 3)
	nack(t, g, Nack{Delivery: Delivery{waits, "1"}, Delay: time.Minute, Metadata: []byte("changed")})
	_, err := g.Bury(t.Context(), []Burial{{Delivery{dead, "1"}, "before"}})
	require.NoError(t, err)
	r.push(after(planned, 60))

	left, err := g.BuryAny(t.Context(), "by anna", []string{held, waits, planned, dead, "unknown"})
	require.NoError(t, err)
	assert.Equal(t, []string{planned, dead, "unknown"}, left)
	want := map[string]string{
		"groups g":          "member",
		"dead:g " + held:    "now+0s",
		"reasons:g " + held: "by anna",
		"messages " + held:  "body " + held,
		"keys held":         "!" + held,
		"dead:g waits":      "now+0s", "reasons:g waits": "by anna", "messages waits": "body waits",
		"attempts:g waits": "1/1/0", "nack_metadata:g waits": "changed",
		"dead:g dead": "now+0s", "reasons:g dead": "before", "messages dead": "body dead",
		"scheduled planned": "now+60s", "messages planned": "body planned",
	}
	assert.Equal(t, want, r.State())
	stale, err := g.Extend(t.Context(), Heartbeat{Lease: lease}, []Held{handedOut(held, "1")})
	require.NoError(t, err)
	assert.Equal(t, []string{held}, stale, "the handler learns it")
	stale, _, err = g.Nack(t.Context(), 0, []Nack{{Delivery: Delivery{held, "1"}}})
	require.NoError(t, err)
	assert.Equal(t, []string{held}, stale)
	left, err = g.BuryAny(t.Context(), "by anna", []string{held, waits})
	require.NoError(t, err)
	assert.Empty(t, left, "sent again")
	assert.Equal(t, want, r.State())
}

func TestALateCopyOfABurialChangesNothing(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"), due("b"))
	require.Len(t, r.claim(g, "c", 1), 1)
	before := r.State()
	reply, err := g.RunForTexts(t.Context(), buryScript, []any{"g", "wake", r.Now().UnixMilli() - 1, "a", "", "bad", "b", "", "bad"})
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b"}, reply)
	assert.Equal(t, before, r.State())
}

// TestABurialMakesRoomUnderALimit for the group's next message.
func TestABurialMakesRoomUnderALimit(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"), due("b"))
	r.limit("g", Limits{MaxInFlight: 1})
	require.Equal(t, []string{"a#1"}, r.claim(g, "c", 1))
	require.Empty(t, r.claim(g, "c", 1))
	next := r.listen(g, "d")
	require.NoError(t, errOf(g.BuryAny(t.Context(), "bad", []string{"a"})))
	assert.Zero(t, next().In, "it can claim now")
	require.Equal(t, []string{"b#1"}, r.claim(g, "c", 1))
}

func TestABurialOfAKeyOfAnotherTypeChangesNothing(t *testing.T) {
	for _, kind := range []string{"unack:g", "dead:g", "reasons:g", "at_limit"} {
		t.Run(kind, func(t *testing.T) {
			r := newScene(t)
			g := r.group("g")
			r.push(due("a"))
			require.NoError(t, r.Client.ZAdd(t.Context(), r.partition.Key(script.QueueOf, "g"), z(1, "a")).Err())
			r.FailsOnType(kind, func() error { return errOf(g.BuryAny(r.Ctx(), "bad", []string{"a"})) })
		})
	}
}

// bury makes a message a dead letter of a group in its first delivery.
func (r *scene) bury(g *Group, ids ...string) {
	r.T.Helper()
	for _, id := range ids {
		require.Equal(r.T, []string{id + "#1"}, r.claim(g, "c", 1))
		stale, err := g.Bury(r.Ctx(), []Burial{{Delivery{id, "1"}, "bad " + id}})
		require.NoError(r.T, err)
		require.Empty(r.T, stale)
	}
}

func TestDiscardRemovesAllOfADeadLetter(t *testing.T) {
	r := newScene(t)
	g, h := r.group("g"), r.group("h")
	r.push(due("a"))
	r.bury(g, "a")
	require.Equal(t, []string{"a#1"}, r.claim(h, "d", 1))
	missing, err := Discard(t.Context(), g, []string{"a", "unknown"}, ever)
	require.NoError(t, err)
	assert.Equal(t, []string{"unknown"}, missing)
	assert.Equal(t, map[string]string{
		"groups g": "member", "groups h": "member", "unack:h a": "now+30s", "messages a": "body a", "refs a": `["h"]`,
	}, r.State(), "the other group still needs it")
	ack(t, h, "a")
	assert.Equal(t, map[string]string{"groups g": "member", "groups h": "member"}, r.State())
}

// TestALateCopyLeavesWhatWasBuriedSinceAlone: the message was requeued, and failed again.
func TestALateCopyLeavesWhatWasBuriedSinceAlone(t *testing.T) {
	for name, call := range map[string]func(g *Group, latest int64) ([]string, error){
		"requeue": func(g *Group, latest int64) ([]string, error) { return Requeue(t.Context(), g, []string{"a"}, latest) },
		"discard": func(g *Group, latest int64) ([]string, error) { return Discard(t.Context(), g, []string{"a"}, latest) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newScene(t)
			g := r.group("g")
			r.push(due("a"))
			r.bury(g, "a")
			latest := r.Now().UnixMilli()
			require.NoError(t, errOf(Requeue(t.Context(), g, []string{"a"}, latest)))
			require.Eventually(t, func() bool { return r.Now().UnixMilli() > latest }, time.Second, time.Millisecond)
			require.Equal(t, []string{"a#2/0/0"}, r.claim(g, "c", 1))
			_, err := g.Bury(t.Context(), []Burial{{Delivery{"a", "2/0/0"}, "again"}})
			require.NoError(t, err)
			before := r.State()
			left, err := call(g, latest)
			require.NoError(t, err)
			assert.Equal(t, []string{"a"}, left)
			assert.Equal(t, before, r.State())
			left, err = call(g, r.Now().UnixMilli())
			require.NoError(t, err)
			assert.Empty(t, left)
		})
	}
}

func z(score float64, member string) redis.Z { return redis.Z{Score: score, Member: member} }

// ack acks deliveries as done names them.
func ack(t *testing.T, g *Group, deliveries ...string) {
	t.Helper()
	acked, err := g.Ack(t.Context(), done(deliveries...))
	require.NoError(t, err)
	require.Empty(t, acked.Stale)
}

func TestExtendStartsTheLeaseAnew(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"), due("b"))
	r.claim(g, "c", 10)
	r.Expire(g.Name(), "a")
	refused, err := g.Extend(t.Context(), Heartbeat{Lease: time.Minute}, []Held{held("a", "1"), held("gone", "1")})
	require.NoError(t, err)
	assert.Equal(t, []string{"gone"}, refused)
	assert.Equal(t, map[string]string{
		"groups g": "member", "messages a": "body a", "messages b": "body b",
		"unack:g a": "now+60s", "unack:g b": "now+30s",
	}, r.State(), "an expired lease is current until somebody else claims")
}

func TestNackAndReleaseWakeTheirOwnGroup(t *testing.T) {
	r := newScene(t)
	g, h := r.group("g"), r.group("h")
	r.push(due("a"), due("b"))
	r.claim(g, "c", 10)
	r.claim(h, "d", 10)
	next := r.listen(g, "c")
	nack(t, h, Nack{Delivery: Delivery{"a", "1"}, Delay: 5 * time.Second})
	nack(t, g, Nack{Delivery: Delivery{"a", "1"}, Delay: time.Minute})
	hint := next()
	assert.InDelta(t, time.Minute, hint.In, float64(time.Second), "it does not hear the nack of the other group")
	assert.False(t, hint.Looked)

	_, err := g.Release(t.Context(), []Release{{Delivery{"b", "1"}, r.Now(), 0}})
	require.NoError(t, err)
	assert.Zero(t, next().In)
}
