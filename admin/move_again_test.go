package admin

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

// TestAMoveThatIsResumedAfterItsMessageWasMovedOnStoresItOnce: the message has arrived, but the
// process that moved it is killed before it hears so.
func TestAMoveThatIsResumedAfterItsMessageWasMovedOnStoresItOnce(t *testing.T) {
	base := newScene(t)
	var from, mid, end *scene
	for calls := 1; ; calls++ {
		from = base.beside(fmt.Sprint("/a", calls))
		mid, end = from.beside("/b"), from.beside("/c")
		from.publish(time.Hour, 1, "k")
		err := fixture.ErrOf(from.another(killAfter(calls)).admin.Move(t.Context(), from.Topic, Selection{Matching: &Query{}}, mid.Topic, nil))
		require.ErrorIs(t, err, errKilled, "never interrupted after the arrival")
		if n, err := mid.admin.Count(t.Context(), mid.Topic, Query{}); err == nil && n == 1 {
			break
		}
	}
	got, err := mid.admin.Move(t.Context(), mid.Topic, Selection{Matching: &Query{}}, end.Topic, nil)
	require.NoError(t, err)
	require.Equal(t, 1, got.Done)
	from.moveOn()
	assert.Equal(t, 1, end.count(Query{}))
	assert.Zero(t, mid.count(Query{}))
}

// TestAMessageThatCameBackAsACopyIsNotTakenForAnOldArrival: moved, copied back, and done where it
// was moved to.
func TestAMessageThatCameBackAsACopyIsNotTakenForAnOldArrival(t *testing.T) {
	base := newScene(t)
	from, mid := base.beside("/a"), base.beside("/b")
	from.publish(time.Hour, 1, "k")
	all := Selection{Matching: &Query{}}
	require.NoError(t, fixture.ErrOf(from.admin.Move(t.Context(), from.Topic, all, mid.Topic, nil)))
	require.NoError(t, fixture.ErrOf(mid.admin.Copy(t.Context(), mid.Topic, all, from.Topic, nil)))
	require.NoError(t, fixture.ErrOf(mid.admin.Cancel(t.Context(), mid.Topic, all, nil)))
	got, err := from.admin.Move(t.Context(), from.Topic, all, mid.Topic, nil)
	require.NoError(t, err)
	assert.Equal(t, 1, got.Skipped)
	require.ErrorIs(t, got.Last, ErrStoredBefore)
	assert.Equal(t, []string{"k"}, keysOf(from.list(Query{}).Entries), "it stays")
}

// TestMovesThatMeetEnd: a message that both topics have, as a copy, is moved both ways at once.
func TestMovesThatMeetEnd(t *testing.T) {
	base := newScene(t)
	from, to := base.beside("/a"), base.beside("/b")
	from.publish(time.Hour, 1, "k")
	all := Selection{Matching: &Query{}}
	require.NoError(t, fixture.ErrOf(from.admin.Copy(t.Context(), from.Topic, all, to.Topic, nil)))
	for _, way := range [][2]*scene{{from, to}, {to, from}} {
		for calls := 1; len(way[0].onTheirWay()) == 0; calls++ {
			err := fixture.ErrOf(way[0].another(killAfter(calls)).admin.Move(t.Context(), way[0].Topic, all, way[1].Topic, nil))
			require.ErrorIs(t, err, errKilled)
		}
	}
	got, err := from.admin.Cancel(t.Context(), from.Topic, Selection{IDs: from.onTheirWay()}, nil)
	require.NoError(t, err)
	assert.ErrorIs(t, got.Last, ErrBeingMoved)
	from.moveOn()
	to.moveOn()
	assert.Empty(t, append(from.onTheirWay(), to.onTheirWay()...))
	assert.Equal(t, 1, from.count(Query{})+to.count(Query{}))
}

// TestNamesOfAnyBytes are those of a topic to move to, and of a topic and groups in cursors.
func TestNamesOfAnyBytes(t *testing.T) {
	base := newScene(t)
	from, to := base.beside("/a\xff"), base.beside("/b\xfe\x80")
	for _, group := range []string{"g\xfd", "g\xfe", "g\xff"} {
		from.groups(1, group)
	}
	from.publish(0, 1, "k", "l")
	for _, group := range []string{"g\xfd", "g\xfe", "g\xff"} {
		g := from.group(0, group)
		from.bury(g, "bad", from.claim(g, "c", 2, "")...)
	}
	var got []string
	for _, e := range from.lists(Query{In: Dead, Limit: 1}, func() {}) {
		got = append(got, e.Group+" "+e.Key)
	}
	assert.ElementsMatch(t, keysOf(from.all(Query{In: Dead})), got)
	assert.Len(t, got, 6)

	_, err := from.admin.Move(t.Context(), from.Topic, Selection{Matching: &Query{In: Dead}}, to.Topic, nil)
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"k", "l"}, keysOf(to.all(Query{})))
}

// TestAMoveThatCannotBeFinishedHoldsUpNoOther: the topic that it goes to is damaged.
func TestAMoveThatCannotBeFinishedHoldsUpNoOther(t *testing.T) {
	base := newScene(t)
	from, damaged, to := base.beside("/a"), base.beside("/b"), base.beside("/c")
	all := Selection{Matching: &Query{}}
	from.publish(time.Hour, 1, "k")
	for calls := 1; len(from.onTheirWay()) == 0; calls++ {
		err := fixture.ErrOf(from.another(killAfter(calls)).admin.Move(t.Context(), from.Topic, all, damaged.Topic, nil))
		require.ErrorIs(t, err, errKilled)
	}
	from.aged(resumeAfter)
	require.NoError(t, from.Client.Set(t.Context(), damaged.Tag()+"0}:scheduled", "x", 0).Err())
	from.publish(time.Hour, 1, "l")
	got, err := from.admin.Move(t.Context(), from.Topic, all, to.Topic, nil)
	require.NoError(t, err)
	assert.Equal(t, Progress{Done: 1}, got)
	from.aged(resumeAfter)
	_, err = from.admin.ResumeMoves(t.Context(), from.Topic, nil)
	var wrong *redisdelay.KeyTypeError
	require.ErrorAs(t, err, &wrong)
}
