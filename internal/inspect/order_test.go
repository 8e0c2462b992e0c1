package inspect

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// ordered is an id that carries an ordering key.
func ordered(n int, key string) string { return fmt.Sprintf("%026d=%d,%s", n, len(key), key) }

// groupWithWaiting returns a group with the first message of a key in delivery, and two messages waiting for it.
func (r *scene) groupWithWaiting(name string) *queue.Group {
	r.T.Helper()
	g := r.group(name)
	r.push(due(ordered(1, "k")), due(ordered(2, "k")), due(ordered(3, "k")))
	require.Equal(r.T, []string{ordered(1, "k") + "#1"}, r.claim(g, "c", 10))
	return g
}

// halting makes dead messages of a group halt their keys.
func (r *scene) halting(name string, halts bool) {
	r.T.Helper()
	require.NoError(r.T, newStore(r.T, r.Client).Topic(r.partition.Topic()).Limit(r.Ctx(), name, queue.Limits{HaltsKeys: halts}))
}

func TestMessagesWaitingForTheirKeyAreASeparatePlace(t *testing.T) {
	r := newScene(t)
	g := r.groupWithWaiting("g")
	r.push(after("later", 60))
	require.NoError(t, r.Client.ZAdd(t.Context(), r.partition.Key(script.QueueOf, "g"), z(5000, "due"), z(1e13, "later")).Err())
	places := map[Place][]string{InQueue: {"due", "later"}, InLine: {ordered(2, "k"), ordered(3, "k")}}
	now := r.Now().UnixMilli()
	for place, want := range places {
		page := r.page(g, inAll(place))
		assert.Equal(t, want, idsOf(page), place)
		count, err := Count(t.Context(), g, place, Position{}, NoEnd)
		require.NoError(t, err)
		assert.Len(t, want, count, place)
		end, err := End(t.Context(), g, place)
		require.NoError(t, err)
		assert.Equal(t, page.Entries[1].Score+1, end, place)

		second := inAll(place)
		second.Limit = 1
		first := r.page(g, second)
		require.True(t, first.More)
		second.From = first.Next
		assert.Equal(t, want[1:], idsOf(r.page(g, second)), place)
	}
	inLine := r.page(g, inAll(InLine)).Entries[0]
	assert.InDelta(t, now, inLine.Score, 5000, "its due time")
	assert.Equal(t, fmt.Sprint(inLine.Score), inLine.Position.Score)
	assert.Equal(t, Seen{ordered(2, "k"), fmt.Sprint(inLine.Score + script.InLine)}, inLine.Seen)

	ranged := inAll(InLine)
	ranged.From, ranged.Before = AtTime(inLine.Score-10), inLine.Score
	assert.Empty(t, r.page(g, ranged).Entries)
	ranged.Before = inLine.Score + 60000
	assert.Len(t, r.page(g, ranged).Entries, 2)
	ranged.From = AtTime(inLine.Score + 60000)
	ranged.Before = NoEnd
	assert.Empty(t, r.page(g, ranged).Entries)

	empty := r.group("empty")
	for _, place := range []Place{InQueue, InLine} {
		end, err := End(t.Context(), empty, place)
		require.NoError(t, err)
		assert.Zero(t, end)
	}
}

func TestCountBeforeExcludesMessagesWaitingForTheirKey(t *testing.T) {
	r := newScene(t)
	g := r.groupWithWaiting("g")
	before, err := CountBefore(t.Context(), g, InQueue, 1e15, "")
	require.NoError(t, err)
	assert.Zero(t, before)
	before, err = CountBefore(t.Context(), g, InQueue, NoEnd, "")
	require.NoError(t, err)
	assert.Zero(t, before)
}

func TestLocateReturnsTheDueTimeOfAWaitingMessage(t *testing.T) {
	r := newScene(t)
	r.groupWithWaiting("g")
	found := r.find(ordered(2, "k"), "")
	require.Len(t, found.Groups, 1)
	f := found.Groups[0]
	assert.Equal(t, queue.StateQueued, f.State)
	assert.True(t, f.InLine)
	assert.WithinDuration(t, r.Now(), f.At, 5*time.Second)
	assert.Equal(t, fmt.Sprint(f.At.UnixMilli()+script.InLine), f.Score)
	assert.False(t, r.find(ordered(1, "k"), "").Groups[0].InLine)
}

func TestFindMatchesIDsWithKeys(t *testing.T) {
	r := newScene(t)
	plain, longer := fmt.Sprintf("%026d", 1), fmt.Sprintf("%026d", 1)+"0"
	for _, id := range []string{ordered(1, "k"), ordered(1, "k") + ":m", keyed(1, "m"), plain, longer} {
		require.NoError(t, r.Client.HSet(t.Context(), r.partition.Key(script.Messages, ""), id, "body").Err())
	}
	found := map[string]bool{}
	require.NoError(t, Find(t.Context(), r.partition, plain, func(_ int, some []Stored) error {
		for _, m := range some {
			found[m.ID] = true
		}
		return nil
	}))
	assert.Equal(t, map[string]bool{ordered(1, "k"): true, ordered(1, "k") + ":m": true, keyed(1, "m"): true, plain: true}, found)
}

func TestReadTurnReturnsTheOwnerAndTheQueuePosition(t *testing.T) {
	r := newScene(t)
	g := r.groupWithWaiting("g")
	r.push(due(ordered(4, "k")), due(ordered(5, "free")))
	before := r.State()
	now := r.Now().Add(time.Second) // after all of them
	for id, want := range map[string]Turn{
		ordered(1, "k"): {ordered(1, "k"), 2}, ordered(2, "k"): {ordered(1, "k"), 0},
		ordered(3, "k"): {ordered(1, "k"), 1}, ordered(4, "k"): {ordered(1, "k"), 2},
		ordered(5, "free"): {}, "plain": {},
	} {
		due := now
		if found, err := LocateIn(t.Context(), r.partition, id, ""); err == nil && len(found.Groups) > 0 && found.Groups[0].InLine {
			due = found.Groups[0].At
		}
		turn, err := ReadTurn(t.Context(), g, id, due)
		require.NoError(t, err)
		assert.Equal(t, want, turn, id)
	}
	require.Equal(t, before, r.State())
}

// TestHaltedKeysAreCountedAndFound among turns of all kinds.
func TestHaltedKeysAreCountedAndFound(t *testing.T) {
	r := newScene(t)
	require.NoError(t, newStore(t, r.Client).Topic(r.partition.Topic()).EnsureListed(t.Context()))
	g := r.group("g")
	r.halting("g", true)
	dead, retry, held, gone := ordered(1, "dead"), ordered(2, "retry"), ordered(3, "held"), ordered(4, "gone")
	other, plain := ordered(5, "held"), "plain"
	r.push(due(dead), due(retry), due(held), due(gone), due(other), due(plain))
	require.Len(t, r.claim(g, "c", 10), 5)
	_, err := g.BuryAny(t.Context(), "bad", []string{dead, other, plain})
	require.NoError(t, err)
	nack(t, g, queue.Nack{Delivery: queue.Delivery{ID: retry, Receipt: "1"}, Delay: time.Minute})
	require.NoError(t, r.Client.ZRem(t.Context(), r.partition.Key(script.UnackOf, "g"), gone).Err())
	astray := ordered(6, "astray") // in line behind itself
	require.NoError(t, r.Client.HSet(t.Context(), r.partition.Key(script.TurnsOf, "g"), "6,astray", astray).Err())
	require.NoError(t, r.Client.ZAdd(t.Context(), r.partition.Key(script.QueueOf, "g"), z(script.InLine+1000, astray)).Err())

	for halts, want := range map[bool]struct {
		count        int
		halted, gone []string
	}{true: {1, []string{dead}, []string{gone, astray}}, false: {0, nil, []string{dead, gone, astray}}} {
		r.halting("g", halts)
		before := r.State()
		halted, lost := turnsOf(t, g)
		assert.ElementsMatch(t, want.halted, halted)
		assert.ElementsMatch(t, want.gone, lost)
		assert.Equal(t, want.count, r.halted())
		require.Equal(t, before, r.State())
	}
}

func turnsOf(t *testing.T, g *queue.Group) (halted, gone []string) {
	t.Helper()
	scanned := 0
	require.NoError(t, FindTurns(t.Context(), g, func(n int, some, others []string) error {
		scanned, halted, gone = scanned+n, append(halted, some...), append(gone, others...)
		return nil
	}))
	assert.Equal(t, 5, scanned)
	return halted, gone
}

// halted counts halted keys of g, in both ways.
func (r *scene) halted() int {
	r.T.Helper()
	groupList, err := ReadGroupList(r.Ctx(), r.partition)
	require.NoError(r.T, err)
	counts, err := ReadCounts(r.Ctx(), r.partition, []string{"g"}, Nothing)
	require.NoError(r.T, err)
	require.NoError(r.T, counts.AddHalted(context.Background(), r.partition, Halting(groupList, counts)))
	all := CountAll(r.Ctx(), newStore(r.T, r.Client), []Listed{{Name: r.partition.Topic(), Version: queue.Version}}, nil)
	require.NoError(r.T, all[0].Err)
	require.Equal(r.T, counts.Groups["g"].Halted, all[0].Groups["g"].Halted)
	return counts.Groups["g"].Halted
}

// TestOnlyTheNewestDeadMessagesAreCounted since a call has to be short.
func TestOnlyTheNewestDeadMessagesAreCounted(t *testing.T) {
	r := newScene(t)
	require.NoError(t, newStore(t, r.Client).Topic(r.partition.Topic()).EnsureListed(t.Context()))
	r.group("g")
	r.halting("g", true)
	for i := range maxDead + 5 {
		id := ordered(i, fmt.Sprint(i))
		require.NoError(t, r.Client.ZAdd(t.Context(), r.partition.Key(script.DeadOf, "g"), z(float64(1000+i), id)).Err())
		if i < 3 || i >= maxDead {
			require.NoError(t, r.Client.HSet(t.Context(), r.partition.Key(script.TurnsOf, "g"), fmt.Sprintf("%d,%d", len(fmt.Sprint(i)), i), id).Err())
		}
	}
	assert.Equal(t, 5, r.halted())
}
