package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// ulid is the n-th id without a key.
func plainID(n int) string { return fmt.Sprintf("%026d", n) }

// departure is a batch that moves messages, whatever their scores.
func departure(place Place, ids ...string) Departure {
	d := Departure{Batch: NewBatch(), To: "other", Partition: 3, Place: place}
	for _, id := range ids {
		d.Messages = append(d.Messages, Seen{ID: id})
	}
	return d
}

func (r *scene) depart(g *Group, d Departure) []string {
	r.t.Helper()
	ids, err := g.Depart(r.ctx(), d)
	require.NoError(r.t, err)
	return ids
}

func (r *scene) endMove(g *Group, batch string, arrived bool, ids ...string) {
	r.t.Helper()
	var endings []Ending
	for _, id := range ids {
		endings = append(endings, Ending{id, arrived})
	}
	require.NoError(r.t, g.EndMove(r.ctx(), batch, endings))
}

// movesOf is all that is on its way, without what depends on the time.
func (r *scene) movesOf() []Move {
	r.t.Helper()
	moves, next, damaged, err := r.partition.Moves(r.ctx(), "0", 0)
	require.NoError(r.t, err)
	require.NoError(r.t, damaged)
	require.Equal(r.t, "0", next)
	for i := range moves {
		assert.WithinDuration(r.t, r.now(), moves[i].Since, time.Minute)
		moves[i].Since = time.Time{}
	}
	return moves
}

// places are where messages can be moved from. prepare returns the group and the id there.
var places = map[string]func(r *scene) (g *Group, place Place, id string){
	"scheduled": func(r *scene) (*Group, Place, string) {
		r.group("g")
		r.push(after(keyed(1, "k"), 60))
		return r.partition.Group(""), InScheduled, keyed(1, "k")
	},
	"queue, of one of two groups": func(r *scene) (*Group, Place, string) {
		g, h := r.group("g"), r.group("h")
		r.push(due(keyed(1, "k")))
		require.Len(r.t, r.claim(g, "c", 1), 1)
		require.Len(r.t, r.claim(h, "d", 1), 1)
		nack(r.t, g, Nack{Delivery: Delivery{keyed(1, "k"), "1"}, Delay: time.Minute, Metadata: []byte("changed")})
		return g, InQueue, keyed(1, "k")
	},
	"dead": func(r *scene) (*Group, Place, string) {
		g := r.group("g")
		r.push(due(keyed(1, "k")))
		r.bury(g, keyed(1, "k"))
		return g, InDead, keyed(1, "k")
	},
}

// after the move, when the message has arrived
var leftBehind = map[string]map[string]string{
	"scheduled": {"groups g": "member"},
	"queue, of one of two groups": {
		"groups g": "member", "groups h": "member", "unack:h " + keyed(1, "k"): "now+30s", "keys k": keyed(1, "k"),
		"messages " + keyed(1, "k"): "body " + keyed(1, "k"), "refs " + keyed(1, "k"): `["h"]`,
	},
	"dead": {"groups g": "member"},
}

func TestAMovedMessageLeavesNothingOfItsGroup(t *testing.T) {
	for name, prepare := range places {
		t.Run(name, func(t *testing.T) {
			r := newScene(t)
			g, place, id := prepare(r)
			d := departure(place, id, "unknown")
			for range 2 { // the second time as if the reply was lost
				assert.Equal(t, []string{id}, r.depart(g, d))
			}
			state := r.state()
			for _, set := range []string{"scheduled ", "queue:g ", "dead:g "} {
				assert.NotContains(t, state, set+id)
			}
			assert.Equal(t, "body "+id, state["messages "+id])
			moves := r.movesOf()
			require.Len(t, moves, 1)
			assert.NotEmpty(t, moves[0].Score)
			moves[0].Score = ""
			assert.Equal(t, []Move{{ID: id, Batch: d.Batch, Name: d.Batch, To: "other", Partition: 3, Place: place, Group: g.name}}, moves)
			for range 2 {
				r.endMove(g, d.Batch, true, id)
				assert.Equal(t, leftBehind[name], r.state())
			}
		})
	}
}

func TestAMessageThatDoesNotArriveGoesBackToWhereItWas(t *testing.T) {
	for name, prepare := range places {
		t.Run(name, func(t *testing.T) {
			r := newScene(t)
			g, place, id := prepare(r)
			before := r.state()
			d := departure(place, id)
			require.Equal(t, []string{id}, r.depart(g, d))
			require.NotEqual(t, before, r.state())
			for range 2 {
				r.endMove(g, d.Batch, false, id)
				assert.Equal(t, before, r.state())
			}
			assert.Empty(t, r.depart(g, d), "a late copy")
			assert.Equal(t, before, r.state())
		})
	}
}

func TestAKeyIsFreeDuringAMoveAndStaysWithWhoeverTookIt(t *testing.T) {
	r := newScene(t)
	none := r.partition.Group("")
	first, second := keyed(1, "k"), keyed(2, "k")
	r.push(after(first, 60))
	d := departure(InScheduled, first)
	require.Len(t, r.depart(none, d), 1)
	require.ErrorIs(t, errOf(r.partition.Cancel(t.Context(), "k")), ErrNotFound)
	r.push(after(second, 60))
	r.endMove(none, d.Batch, false, first)
	assert.Equal(t, map[string]string{
		"scheduled " + first: "now+60s", "scheduled " + second: "now+60s", "keys k": second,
		"messages " + first: "body " + first, "messages " + second: "body " + second,
	}, r.state())
}

// TestNamesOfAnyBytesStayAsTheyAre although JSON in Go is text.
func TestNamesOfAnyBytesStayAsTheyAre(t *testing.T) {
	for _, name := range []string{"\xff", "é\x80\x00\"\\", "日本", "\u2028"} {
		r := newScene(t)
		g := r.group(name)
		r.push(due("a"))
		r.bury(g, "a")
		d := departure(InDead, "a")
		d.To = name
		require.Len(t, r.depart(g, d), 1)
		moves := r.movesOf()
		require.Len(t, moves, 1)
		assert.Equal(t, []string{name, name}, []string{moves[0].To, moves[0].Group})
	}
}

func TestOnlyWhatIsStillThereDeparts(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	none := r.partition.Group("")
	r.push(due("a"), after("b", 60), after("c", 60))
	require.Len(t, r.claim(g, "c", 1), 1)
	require.NoError(t, r.client.HDel(t.Context(), r.partition.Key(script.Messages, ""), "c").Err())
	before := r.state()
	d := departure(InScheduled, "a", "c", "unknown")
	d.Messages = append(d.Messages, Seen{"b", "1"})
	assert.Empty(t, r.depart(none, d), "in delivery, without a body, unknown, at another time")
	assert.Equal(t, before, r.state())

	first, second := departure(InScheduled, "b"), departure(InScheduled, "b")
	require.Equal(t, []string{"b"}, r.depart(none, first))
	before = r.state()
	assert.Empty(t, r.depart(none, second), "another batch moves it")
	r.endMove(none, second.Batch, true, "b")
	assert.Equal(t, before, r.state())
}

func TestALateDepartureTakesNothing(t *testing.T) {
	r := newScene(t)
	r.push(after("a", 60))
	before := r.state()
	args := []any{NewBatch(), r.now().Add(-time.Second).UnixMilli(), "other", 0, "scheduled", "", "a", ""}
	reply, err := r.partition.Group("").Run(t.Context(), departScript, args)
	require.NoError(t, err)
	assert.Equal(t, "late", reply.Text())
	assert.Equal(t, before, r.state())
}

// TestAMoveThatIsTakenOverIsVoid for those who have begun it: they may have been stopped for
// minutes.
func TestAMoveThatIsTakenOverIsVoid(t *testing.T) {
	r := newScene(t)
	none := r.partition.Group("")
	r.push(after("a", 60), after("b", 60))
	d, next := departure(InScheduled, "a", "b"), NewBatch()
	require.Len(t, r.depart(none, d), 2)
	takeOver := func(batch string, age time.Duration) int {
		moves, _, err := r.partition.TakeOver(t.Context(), "0", batch, age, time.Hour)
		require.NoError(t, err)
		return len(moves)
	}
	assert.Zero(t, takeOver(next, time.Minute), "it is new")
	for range 2 { // the second time as if the reply was lost
		assert.Equal(t, 2, takeOver(next, 0))
	}
	assert.Equal(t, 2, takeOver(next, time.Minute), "its own")
	assert.Zero(t, takeOver(NewBatch(), time.Minute), "it is new again")
	moves, _, err := r.partition.TakeOver(t.Context(), "0", NewBatch(), 0, 0)
	require.NoError(t, err)
	assert.Empty(t, moves, "they are too old")
	before := r.state()
	r.endMove(none, d.Batch, false, "a")
	r.endMove(none, d.Batch, true, "b")
	assert.Empty(t, r.depart(none, d))
	assert.Equal(t, before, r.state())
	r.endMove(none, next, true, "a")
	r.endMove(none, next, false, "b")
	assert.Equal(t, map[string]string{"scheduled b": "now+60s", "messages b": "body b"}, r.state())
}

func TestCancelLeavesAloneWhatIsBeingMoved(t *testing.T) {
	r := newScene(t)
	g, h := r.group("g"), r.group("h")
	first, second := keyed(1, "k"), keyed(2, "l")
	r.push(due(first))
	require.Len(t, r.claim(g, "c", 1), 1)
	require.Len(t, r.claim(h, "d", 1), 1)
	nack(t, g, Nack{Delivery: Delivery{first, "1"}, Delay: time.Minute})
	r.push(after(second, 60))
	of, ofScheduled := departure(InQueue, first), departure(InScheduled, second)
	require.Len(t, r.depart(g, of), 1)
	require.Len(t, r.depart(r.partition.Group(""), ofScheduled), 1)
	before := r.state()
	require.ErrorIs(t, errOf(r.partition.CancelID(t.Context(), second)), ErrNotFound)
	assert.Equal(t, before, r.state())
	require.NoError(t, errOf(r.partition.Cancel(t.Context(), "k")), "the other group waits for it")
	assert.Equal(t, `["g"]`, r.state()["refs "+first])
	assert.Equal(t, "body "+first, r.state()["messages "+first])
	require.ErrorIs(t, errOf(r.partition.CancelID(t.Context(), first)), ErrNotFound)
	r.endMove(g, of.Batch, true, first)
	r.endMove(r.partition.Group(""), ofScheduled.Batch, true, second)
	assert.Equal(t, map[string]string{"groups g": "member", "groups h": "member"}, r.state())
}

func TestWhatComesBackToARetiredGroupIsFreed(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due(keyed(1, "k")))
	r.bury(g, keyed(1, "k"))
	d := departure(InDead, keyed(1, "k"))
	require.Len(t, r.depart(g, d), 1)
	require.NoError(t, g.retire(t.Context(), RetireForced))
	_, err := g.forgetAll(t.Context(), noDeadline)
	require.NoError(t, err)
	r.endMove(g, d.Batch, false, keyed(1, "k"))
	for key := range r.state() {
		assert.Equal(t, "control retired:g", key)
	}
}

func TestCarryReadsInPieces(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	ids := []string{plainID(1), plainID(2), plainID(3)}
	for _, id := range ids {
		r.push(Message{ID: id, Body: make([]byte, maxReplyBytes*2/3)})
	}
	require.Len(t, r.claim(g, "c", 1), 1)
	require.Len(t, r.claim(g, "c", 1), 1)
	require.Len(t, r.claim(g, "c", 1), 1)
	for _, id := range ids {
		nack(t, g, Nack{Delivery: Delivery{id, "1"}, Delay: time.Minute, Metadata: []byte("changed " + id)})
	}
	d := departure(InQueue, ids...)
	require.Equal(t, ids, r.depart(g, d))
	var got []string
	for left := ids; len(left) > 0; {
		moves, rest, err := g.Carry(t.Context(), d.Batch, left)
		require.NoError(t, err)
		require.Len(t, moves, 1)
		assert.Len(t, moves[0].Body, maxReplyBytes*2/3)
		assert.Equal(t, "changed "+moves[0].ID, string(moves[0].Metadata))
		assert.False(t, moves[0].Here)
		got, left = append(got, moves[0].ID), rest
	}
	assert.Equal(t, ids, got)
	moves, _, err := g.Carry(t.Context(), "another batch", ids)
	require.NoError(t, err)
	assert.Empty(t, moves)
}
