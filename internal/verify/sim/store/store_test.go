package store

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const second = 1_000_000 // µs

// scene is a partition with a group.
type scene struct {
	*Partition
	t       *testing.T
	number  int64
	notices []Notice
}

func newScene(t *testing.T, groups ...string) *scene {
	t.Helper()
	topic := NewTopic()
	r := &scene{Partition: topic.Partition(0), t: t}
	topic.Notify = func(_ int, n Notice) { r.notices = append(r.notices, n) }
	for _, g := range groups {
		r.Register(g)
	}
	return r
}

func (r *scene) push(now int64, ids ...string) {
	r.number++
	var call []Message
	for _, id := range ids {
		call = append(call, Message{ID: id, Body: []byte("body of " + id)})
	}
	r.Push(now, Batch{Publisher: "p", Number: r.number, Duplicates: "reject", Calls: [][]Message{call}})
}

func (r *scene) claim(now int64, group string, limit, free int) Claims {
	r.t.Helper()
	r.number++
	claims, known := r.Claim(now, Request{
		Group: group, Consumer: "c", Number: r.number, Limit: limit, Free: free,
		Lease: 10_000, MaxDeliveries: 3, Bytes: 1 << 20,
	})
	require.True(r.t, known)
	require.NoError(r.t, r.Check())
	return claims
}

func tokens(c Claims) []string {
	var list []string
	for _, m := range c.Messages {
		list = append(list, m.ID+" "+m.Token.String())
	}
	return list
}

func TestTokensCountWhatHandlersHaveSeen(t *testing.T) {
	r := newScene(t, "g")
	r.push(0, "a", "b")
	first := r.claim(0, "g", 10, 1)
	assert.Equal(t, []string{"a 1", "b 1"}, tokens(first), "the first claim may be ahead of the workers")

	a, b := Delivery{"a", first.Messages[0].Token}, Delivery{"b", first.Messages[1].Token}
	r.Nack(0, "g", 3, []Nack{{Delivery: a}})
	r.Release(0, "g", []Release{{Delivery: b}})
	again := r.claim(0, "g", 10, 1)
	assert.Equal(t, []string{"a 2/1/1", "b 2/0/0"}, tokens(again), "a message given back once may be held ahead again")

	r.Release(0, "g", []Release{{Delivery: Delivery{"a", again.Messages[0].Token}}, {Delivery: Delivery{"b", again.Messages[1].Token}}})
	again = r.claim(0, "g", 10, 1)
	assert.Equal(t, []string{"a 3/1/1"}, tokens(again))
	assert.True(t, again.NeedsWorker, "a message claimed before is only for a free worker")
	assert.Equal(t, []string{"b 3/0/1"}, tokens(r.claim(0, "g", 10, 1)))
}

func TestAMessageThatKillsItsConsumersIsBuried(t *testing.T) {
	r := newScene(t, "g")
	r.push(0, "a")
	now := int64(0)
	for n := range 4 {
		claims := r.claim(now, "g", 1, 1)
		require.Len(t, claims.Messages, 1, "claim %d", n+1)
		now += 11 * second
	}
	claims := r.claim(now, "g", 1, 1)
	assert.Equal(t, []Buried{{"a", "not acked in 0 deliveries, and lost with its consumer 3 times"}}, claims.Buried)
}

func TestAKillerIsBuriedEvenIfOthersGiveItBack(t *testing.T) {
	r := newScene(t, "g")
	r.push(0, "a")
	now, kills := int64(0), 0
	for range 20 {
		if len(r.claim(now, "g", 1, 1).Messages) > 0 {
			kills++ // the consumer that has it now dies
		}
		now += 11 * second
		if claims := r.claim(now, "g", 1, 1); len(claims.Messages) > 0 {
			r.Release(now, "g", []Release{{Delivery: Delivery{"a", claims.Messages[0].Token}}})
		}
	}
	assert.LessOrEqual(t, kills, 4)
}

func TestOnlyHandedOutDeliveriesCountOnceExtended(t *testing.T) {
	r := newScene(t, "g")
	r.push(0, "a", "b")
	claims := r.claim(0, "g", 2, 2)
	held := []Held{
		{Delivery{"a", claims.Messages[0].Token}, true},
		{Delivery{"b", claims.Messages[1].Token}, false},
	}
	for range 2 { // a repeat counts nothing more
		assert.Empty(t, r.Extend(5*second, "g", 10_000, held))
	}
	again := r.claim(16*second, "g", 2, 2)
	assert.Equal(t, []string{"a 2/1/1", "b 2/0/1"}, tokens(again))
}

func TestARepeatedRequestGetsTheSameMessages(t *testing.T) {
	r := newScene(t, "g")
	r.push(0, "a", "b")
	first := r.claim(0, "g", 1, 1)
	request := Request{Group: "g", Consumer: "c", Number: r.number, Limit: 1, Free: 1, Lease: 10_000, Bytes: 1 << 20}
	again, _ := r.Claim(second, request)
	assert.Equal(t, tokens(first), tokens(again))
	request.Number--
	late, _ := r.Claim(second, request)
	assert.Empty(t, late.Messages)
}

func TestTheLastGroupRemovesTheBody(t *testing.T) {
	r := newScene(t, "g", "h")
	r.push(0, "a")
	r.claim(0, "g", 1, 1)
	missing, _ := r.Ack("g", []string{"a", "a"})
	assert.Empty(t, missing, "an id given twice is found twice")
	assert.True(t, r.Stored("a"))
	assert.Equal(t, Queued, r.Place("h", "a"))
	r.claim(0, "h", 1, 1)
	missing, _ = r.Ack("h", []string{"a"})
	assert.Empty(t, missing)
	assert.False(t, r.Stored("a"))
	assert.NoError(t, r.Check())
}

func TestABatchIsStoredOnce(t *testing.T) {
	r := newScene(t, "g")
	b := Batch{Publisher: "p", Number: 1, Duplicates: "reject", Calls: [][]Message{{{ID: "a"}}}}
	assert.Equal(t, []string{"a"}, r.Push(0, b).Stored)
	assert.Empty(t, r.Push(0, b).Stored)
	assert.Equal(t, []Notice{{Wait: 0}}, r.notices)
}

func TestKeysAreHeldByOneMessage(t *testing.T) {
	const id, next = "00000000000000000000000001:k", "00000000000000000000000002:k"
	r := newScene(t, "g")
	batch := func(number int64, duplicates, id string) Pushed {
		return r.Push(0, Batch{Publisher: "p", Number: number, Duplicates: duplicates, Calls: [][]Message{{{ID: id, Delay: 1000}}}})
	}
	assert.Equal(t, []string{id}, batch(1, "reject", id).Stored)
	assert.Equal(t, []Duplicate{{0, 0}}, batch(2, "reject", next).Refused)
	assert.Empty(t, batch(3, "ignore", next).Stored)
	assert.Equal(t, []string{id}, batch(4, "replace", next).Replaced)
	assert.Equal(t, next, r.Lead("k"))
	_, ok := r.Reschedule(0, next, 5000)
	assert.True(t, ok)
	_, ok = r.Cancel(next)
	assert.True(t, ok)
	assert.Empty(t, r.Lead("k"))
	assert.NoError(t, r.Check())
}
