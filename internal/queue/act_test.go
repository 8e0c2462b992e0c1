package queue

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestByItsIDAMessageIsCanceledAsByItsKey wherever it is.
func TestByItsIDAMessageIsCanceledAsByItsKey(t *testing.T) {
	eachStanding(t, func(r *scene, name, id string, want Standing) {
		got, err := r.partition.CancelID(r.ctx(), id)
		assert.Equal(r.t, standings[name].cancel, err)
		assert.Equal(r.t, want, got)
		left := map[string]string{"groups g": "member", "groups h": "member"}
		for field, value := range standings[name].afterCancel {
			left[strings.ReplaceAll(field, "%s", id)] = strings.ReplaceAll(value, "%s", id)
		}
		assert.Equal(r.t, left, r.state())
	})
}

// TestByItsIDAMessageIsRescheduledAsByItsKey and to the millisecond, as often as it is called.
func TestByItsIDAMessageIsRescheduledAsByItsKey(t *testing.T) {
	eachStanding(t, func(r *scene, name, id string, want Standing) {
		due := r.now().UnixMilli() + 3_600_000
		state := r.state()
		for key := range state {
			set, member, _ := strings.Cut(key, " ")
			if member == id && (set == "scheduled" || strings.HasPrefix(set, "queue:")) {
				state[key] = "now+3600s"
			}
		}
		for range 2 {
			got, err := r.partition.RescheduleID(r.ctx(), id, due)
			assert.Equal(r.t, standings[name].reschedule, err)
			assert.Equal(r.t, want, got)
			assert.Equal(r.t, state, r.state())
		}
		if want.Scheduled {
			assert.Equal(r.t, float64(due), r.client.ZScore(r.ctx(), r.partition.names.key(scheduled), id).Val())
			_, err := r.partition.RescheduleAt(r.ctx(), "k", due+1)
			require.NoError(r.t, err)
			assert.Equal(r.t, float64(due+1), r.client.ZScore(r.ctx(), r.partition.names.key(scheduled), id).Val())
		}
	})
}

// TestAMessageThatLostItsKeyIsCanceledWithoutTheNextHolder and its window.
func TestAMessageThatLostItsKeyIsCanceledWithoutTheNextHolder(t *testing.T) {
	r := newScene(t)
	g, h := r.group("g"), r.group("h")
	first, second := keyed(1, "k"), keyed(2, "k")
	r.push(due(first))
	r.bury(g, first)
	r.claim(h, "c", 1)
	refused := r.pushWindow(1<<41, RejectDuplicates, []Message{after(second, 60)})
	require.Empty(t, refused)
	want := r.state()
	require.Contains(t, want, "taken k")
	delete(want, "unack:h "+first)
	want["refs "+first] = `["g"]`
	standing, err := r.partition.CancelID(t.Context(), first)
	require.NoError(t, err)
	assert.Equal(t, StateInDelivery, standing.Groups["h"])
	assert.Equal(t, want, r.state())
	require.NoError(t, errOf(r.partition.CancelID(t.Context(), second)))
	assert.NotContains(t, r.state(), "taken k", "the holder's window ends with it")
	assert.NotContains(t, r.state(), "keys k")
}

// seen lists messages as they are scheduled.
func (r *scene) seen(key string, ids ...string) (list []Seen) {
	r.t.Helper()
	for _, id := range ids {
		score, err := r.client.ZScore(r.ctx(), key, id).Result()
		require.NoError(r.t, err, id)
		list = append(list, Seen{id, fmt.Sprintf("%.0f", score)})
	}
	return list
}

// withdraw withdraws messages and returns those that are left.
func (r *scene) withdraw(g *Group, place Place, seen ...Seen) []string {
	r.t.Helper()
	left, err := g.Withdraw(r.ctx(), place, seen)
	require.NoError(r.t, err)
	return left
}

func TestWithdrawTakesBackWhatIsStillScheduledAsItWasSeen(t *testing.T) {
	r := newScene(t)
	r.group("g")
	a, b, c, d := keyed(1, "a"), keyed(2, "b"), keyed(3, "c"), "d"
	require.Empty(t, r.pushWindow(1<<41, RejectDuplicates, []Message{after(a, 60), after(b, 60), after(c, 60), after(d, 60)}))
	want := r.state()
	seen := r.seen(r.partition.names.key(scheduled), a, b, c, d)
	require.NoError(t, errOf(r.partition.RescheduleID(t.Context(), b, r.now().UnixMilli()+120_000)))
	require.NoError(t, errOf(r.partition.CancelID(t.Context(), c)))
	for _, gone := range []string{a, c, d} {
		delete(want, "scheduled "+gone)
		delete(want, "messages "+gone)
		delete(want, "keys "+gone[len(gone)-1:])
		delete(want, "taken "+gone[len(gone)-1:])
	}
	want["scheduled "+b] = "now+120s"

	left, err := r.partition.Group("").Withdraw(t.Context(), InScheduled, seen)
	require.NoError(t, err)
	assert.Equal(t, []string{b, c}, left)
	assert.Equal(t, want, r.state())

	left, err = r.partition.Group("").Withdraw(t.Context(), InScheduled, seen)
	require.NoError(t, err)
	assert.Equal(t, []string{a, b, c, d}, left, "a late copy changes nothing")
	assert.Equal(t, want, r.state())
}

// TestWithdrawEndsWhatWaitsForOneGroup, and leaves it to the other until that has given it up, too.
func TestWithdrawEndsWhatWaitsForOneGroup(t *testing.T) {
	r := newScene(t)
	g, h := r.group("g"), r.group("h")
	id, again := keyed(1, "k"), keyed(2, "l")
	r.push(due(id), due(again))
	for _, group := range []*Group{g, h} {
		require.Len(t, r.claim(group, "c", 2), 2)
		for _, one := range []string{id, again} {
			nack(t, group, Nack{Delivery: Delivery{one, "1"}, Delay: time.Minute, Metadata: []byte("changed")})
		}
	}
	seen := r.seen(r.partition.names.keyOf(queueOf, "g"), id, again)
	require.NoError(t, errOf(r.partition.RescheduleID(t.Context(), again, r.now().UnixMilli()+120_000)))
	want := r.state()
	for _, gone := range []string{"queue:g ", "attempts:g ", "changed:g "} {
		require.Contains(t, want, gone+id)
		delete(want, gone+id)
	}
	want["refs "+id] = `["h"]`
	for _, left := range [][]string{{again}, {id, again}} { // the second call is a late copy
		assert.Equal(t, left, r.withdraw(g, InQueue, seen...))
		assert.Equal(t, want, r.state())
	}
	for key := range want {
		if strings.HasSuffix(key, id) {
			delete(want, key)
		}
	}
	delete(want, "keys k")
	assert.Empty(t, r.withdraw(h, InQueue, r.seen(r.partition.names.keyOf(queueOf, "h"), id)...))
	assert.Equal(t, want, r.state(), "the last group frees the body and the key")
}

// TestWithdrawLeavesTheKeyToWhoeverHoldsIt by now.
func TestWithdrawLeavesTheKeyToWhoeverHoldsIt(t *testing.T) {
	r := newScene(t)
	first, second := keyed(1, "k"), keyed(2, "k")
	r.push(after(first, 60))
	require.NoError(t, r.client.HDel(t.Context(), r.partition.names.key(messageKeys), "k").Err())
	require.Empty(t, r.pushWindow(1<<41, RejectDuplicates, []Message{after(second, 60)}))
	want := r.state()
	delete(want, "scheduled "+first)
	delete(want, "messages "+first)
	left, err := r.partition.Group("").Withdraw(t.Context(), InScheduled, r.seen(r.partition.names.key(scheduled), first))
	require.NoError(t, err)
	assert.Empty(t, left)
	assert.Equal(t, want, r.state())
}

func TestWithdrawFreesLargeMessagesInSeveralCalls(t *testing.T) {
	r := newScene(t)
	ids := r.store(r.partition.names.key(scheduled), 40, 1<<20)
	calls := r.watch("ZMSCORE", r.partition.names.key(scheduled))
	left, err := r.partition.Group("").Withdraw(t.Context(), InScheduled, r.seen(r.partition.names.key(scheduled), ids...))
	require.NoError(t, err)
	assert.Empty(t, left)
	assert.Empty(t, r.state())
	assert.Len(t, calls(), 2)
}

func TestRetimeMovesWhatWaitsAsItWasSeen(t *testing.T) {
	for _, place := range []Place{InScheduled, InQueue} {
		t.Run(string(place), func(t *testing.T) {
			r := newScene(t)
			g := r.group("g")
			r.push(after("a", 60), after("b", 60), after("c", 60))
			key, name := r.partition.names.key(scheduled), "scheduled "
			if place == InQueue {
				key, name = r.partition.names.keyOf(queueOf, "g"), "queue:g "
				require.NoError(t, r.client.Rename(t.Context(), r.partition.names.key(scheduled), key).Err())
			}
			seen := r.seen(key, "a", "b", "c")
			require.NoError(t, errOf(r.partition.RescheduleID(t.Context(), "b", r.now().UnixMilli()+90_000)))
			next := r.listen(g, "c")
			want := r.state()
			want[name+"a"], want[name+"c"] = "now+5s", "now+5s"
			due := r.now().UnixMilli() + 5_000
			left, err := g.Retime(t.Context(), place, due, append(seen, Seen{"unknown", "1"}))
			require.NoError(t, err)
			assert.Equal(t, []string{"b", "unknown"}, left)
			assert.Equal(t, want, r.state())
			assert.InDelta(t, 5, next().In.Seconds(), 1, "consumers hear that something is due earlier")

			left, err = g.Retime(t.Context(), place, due+3_600_000, seen)
			require.NoError(t, err)
			assert.Equal(t, []string{"a", "b", "c"}, left, "a late copy of another call changes nothing")
			assert.Equal(t, want, r.state())
		})
	}
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
		"attempts:g waits": "1/1/0", "changed:g waits": "changed",
		"dead:g dead": "now+0s", "reasons:g dead": "before", "messages dead": "body dead",
		"scheduled planned": "now+60s", "messages planned": "body planned",
	}
	assert.Equal(t, want, r.state())
	stale, err := g.Extend(t.Context(), Heartbeat{Lease: lease}, []Held{handedOut(held, "1")})
	require.NoError(t, err)
	assert.Equal(t, []string{held}, stale, "the handler learns it")
	stale, _, err = g.Nack(t.Context(), 0, []Nack{{Delivery: Delivery{held, "1"}}})
	require.NoError(t, err)
	assert.Equal(t, []string{held}, stale)
	left, err = g.BuryAny(t.Context(), "by anna", []string{held, waits})
	require.NoError(t, err)
	assert.Empty(t, left, "sent again")
	assert.Equal(t, want, r.state())
}

func TestALateCopyOfABurialChangesNothing(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"), due("b"))
	require.Len(t, r.claim(g, "c", 1), 1)
	before := r.state()
	reply, err := g.settle(t.Context(), buryScript, []any{"g", "wake", r.now().UnixMilli() - 1, "a", "", "bad", "b", "", "bad"})
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b"}, reply)
	assert.Equal(t, before, r.state())
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
	assert.Zero(t, next(), "it can claim now")
	require.Equal(t, []string{"b#1"}, r.claim(g, "c", 1))
}

// TestALateCopyLeavesWhatWasBuriedSinceAlone: the message was requeued, and failed again.
func TestALateCopyLeavesWhatWasBuriedSinceAlone(t *testing.T) {
	for name, call := range map[string]func(g *Group, latest int64) ([]string, error){
		"requeue": func(g *Group, latest int64) ([]string, error) { return g.Requeue(t.Context(), latest, []string{"a"}) },
		"discard": func(g *Group, latest int64) ([]string, error) { return g.Discard(t.Context(), latest, []string{"a"}) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newScene(t)
			g := r.group("g")
			r.push(due("a"))
			r.bury(g, "a")
			latest := r.now().UnixMilli()
			require.NoError(t, errOf(g.Requeue(t.Context(), latest, []string{"a"})))
			require.Eventually(t, func() bool { return r.now().UnixMilli() > latest }, time.Second, time.Millisecond)
			require.Equal(t, []string{"a#2/0/0"}, r.claim(g, "c", 1))
			_, err := g.Bury(t.Context(), []Burial{{Delivery{"a", "2/0/0"}, "again"}})
			require.NoError(t, err)
			before := r.state()
			left, err := call(g, latest)
			require.NoError(t, err)
			assert.Equal(t, []string{"a"}, left)
			assert.Equal(t, before, r.state())
			left, err = call(g, r.now().UnixMilli())
			require.NoError(t, err)
			assert.Empty(t, left)
		})
	}
}

// TestActsOnAKeyOfAnotherTypeChangeNothing and name it.
func TestActsOnAKeyOfAnotherTypeChangeNothing(t *testing.T) {
	for kind, act := range map[string]func(r *scene, g *Group) error{
		"scheduled": func(r *scene, _ *Group) error {
			return errOf(r.partition.Group("").Withdraw(r.ctx(), InScheduled, []Seen{{"a", "1"}}))
		},
		"messages": func(r *scene, _ *Group) error {
			return errOf(r.partition.Group("").Withdraw(r.ctx(), InScheduled, []Seen{{"a", "1"}}))
		},
		"keys": func(r *scene, _ *Group) error {
			return errOf(r.partition.Group("").Withdraw(r.ctx(), InScheduled, []Seen{{"a", "1"}}))
		},
		"taken": func(r *scene, _ *Group) error {
			return errOf(r.partition.Group("").Withdraw(r.ctx(), InScheduled, []Seen{{"a", "1"}}))
		},
		"queue:g":   func(r *scene, g *Group) error { return errOf(g.Retime(r.ctx(), InQueue, 1, []Seen{{"a", "1"}})) },
		"unack:g":   func(r *scene, g *Group) error { return errOf(g.BuryAny(r.ctx(), "bad", []string{"a"})) },
		"dead:g":    func(r *scene, g *Group) error { return errOf(g.BuryAny(r.ctx(), "bad", []string{"a"})) },
		"reasons:g": func(r *scene, g *Group) error { return errOf(g.BuryAny(r.ctx(), "bad", []string{"a"})) },
		"full":      func(r *scene, g *Group) error { return errOf(g.BuryAny(r.ctx(), "bad", []string{"a"})) },
		"refs":      func(r *scene, _ *Group) error { return errOf(r.partition.named(r.ctx())) },
	} {
		t.Run(kind, func(t *testing.T) { fails(t, kind, act) })
	}
	for _, kind := range []string{"messages", "keys", "refs", "arrived", "queue:g", "attempts:g", "reasons:g", "changed:g"} {
		t.Run("withdraw, "+kind, func(t *testing.T) {
			fails(t, kind, func(r *scene, g *Group) error { return errOf(g.Withdraw(r.ctx(), InQueue, []Seen{{"a", "1"}})) })
		})
	}
}

// fails makes a call while a key is of another type.
func fails(t *testing.T, kind string, call func(r *scene, g *Group) error) {
	t.Helper()
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"))
	require.NoError(t, r.client.ZAdd(t.Context(), r.partition.names.key(scheduled), z(1, "a")).Err())
	require.NoError(t, r.client.ZAdd(t.Context(), r.partition.names.keyOf(queueOf, "g"), z(1, "a")).Err())
	key := string(r.partition.names) + ":" + kind
	require.NoError(t, r.client.Del(t.Context(), key).Err())
	require.NoError(t, r.client.Set(t.Context(), key, "x", 0).Err())
	before := r.state()
	var wrong *KeyTypeError
	require.ErrorAs(t, call(r, g), &wrong)
	assert.Equal(t, key, wrong.Key)
	assert.Equal(t, before, r.state())
}
