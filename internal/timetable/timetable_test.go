package timetable_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/timetable"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func newTable(t *testing.T, client redis.UniversalClient) (table *timetable.Timetable, prefix string) {
	t.Helper()
	prefix = "test-" + watermill.NewShortUUID()
	c := script.NewClient(client, prefix, observe.Observer{})
	return timetable.New(c), prefix
}

// set makes one change and returns the new revision.
func set(t *testing.T, table *timetable.Timetable, c timetable.Change) int64 {
	t.Helper()
	revisions, _, current, err := table.Set(t.Context(), timetable.Declaration{}, []timetable.Change{c})
	require.NoError(t, err)
	require.True(t, current)
	return revisions[0]
}

func TestAChangeBasedOnAStaleRevisionIsRejected(t *testing.T) {
	table, _ := newTable(t, redistest.Client(t))
	first := set(t, table, timetable.Change{ID: "s", Text: "one"})
	require.Positive(t, first)
	assert.Zero(t, set(t, table, timetable.Change{ID: "s", Text: "two"}))
	assert.Zero(t, set(t, table, timetable.Change{ID: "s", Seen: first - 1, Text: "two"}))
	second := set(t, table, timetable.Change{ID: "s", Seen: first, Text: "two"})
	assert.Greater(t, second, first)
	found, _, err := table.Named(t.Context(), "s", "other")
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.Equal(t, "two", found["s"].Text)
	assert.Equal(t, second, found["s"].Revision)
}

func TestAnOlderDeclarationChangesNothing(t *testing.T) {
	table, _ := newTable(t, redistest.Client(t))
	apply := func(version int64, c ...timetable.Change) bool {
		_, _, current, err := table.Set(t.Context(), timetable.Declaration{Owner: "shop", Version: version}, c)
		require.NoError(t, err)
		return current
	}
	assert.True(t, apply(2, timetable.Change{ID: "a", Text: "2"}))
	assert.False(t, apply(1, timetable.Change{ID: "b", Text: "1"}))
	assert.True(t, apply(2))
	list, err := table.All(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Equal(t, "a", list[0].ID)
	assert.True(t, apply(10, timetable.Change{ID: "a", Seen: list[0].Revision}), "the number counts, not its text")
	list, err = table.All(t.Context())
	require.NoError(t, err)
	assert.Empty(t, list)
}

func TestATakenScheduleStaysTakenUntilDoneOrItsLeaseExpires(t *testing.T) {
	client := redistest.Client(t)
	table, prefix := newTable(t, client)
	set(t, table, timetable.Change{ID: "s", Text: "one"})
	taken, now, _, err := table.Take(t.Context(), time.Minute)
	require.NoError(t, err)
	require.Len(t, taken, 1)
	again, _, next, err := table.Take(t.Context(), time.Minute)
	require.NoError(t, err)
	assert.Empty(t, again)
	assert.Equal(t, taken[0].Lease, next)

	at := now.Add(time.Hour).Truncate(time.Millisecond)
	require.NoError(t, table.Done(t.Context(), []timetable.Next{{Definition: taken[0], At: at}}))
	_, _, next, err = table.Take(t.Context(), time.Minute)
	require.NoError(t, err)
	assert.Equal(t, at, next)

	// A process that has taken an old revision does not postpone the new one.
	set(t, table, timetable.Change{ID: "s", Seen: taken[0].Revision, Text: "two"})
	require.NoError(t, table.Done(t.Context(), []timetable.Next{{Definition: taken[0], At: at}}))
	taken, _, _, err = table.Take(t.Context(), time.Minute)
	require.NoError(t, err)
	require.Len(t, taken, 1)

	require.NoError(t, client.HDel(t.Context(), "{"+prefix+":periodic}:schedules", "s").Err())
	require.NoError(t, client.ZAdd(t.Context(), "{"+prefix+":periodic}:upcoming", redis.Z{Member: "s", Score: 1}).Err())
	taken, _, next, err = table.Take(t.Context(), time.Minute)
	require.NoError(t, err)
	assert.Empty(t, taken, "a schedule without a definition is dropped")
	assert.True(t, next.IsZero())
}

func TestAllReadsEveryPage(t *testing.T) {
	table, _ := newTable(t, redistest.Client(t))
	const count = 2*timetable.PageSize + 7
	var changes []timetable.Change
	for i := range count {
		changes = append(changes, timetable.Change{ID: fmt.Sprintf("s%04d", i), Text: "x"})
	}
	_, _, _, err := table.Set(t.Context(), timetable.Declaration{Owner: "shop", Version: 1}, changes)
	require.NoError(t, err)
	all, err := table.All(t.Context())
	require.NoError(t, err)
	require.Len(t, all, count)
	assert.Equal(t, fmt.Sprintf("s%04d", count-1), all[count-1].ID)
}

// TestTakeRestoresLostUpcomingEntries: schedules that have only a definition are due now, and taken schedules stay as they are.
func TestTakeRestoresLostUpcomingEntries(t *testing.T) {
	client := redistest.Client(t)
	table, prefix := newTable(t, client)
	upcoming := "{" + prefix + ":periodic}:upcoming"
	for _, lost := range []int{1, 2*timetable.PageSize + 7} {
		var changes []timetable.Change
		for i := range lost {
			changes = append(changes, timetable.Change{ID: fmt.Sprint(lost, " ", i), Text: "x"})
		}
		_, _, _, err := table.Set(t.Context(), timetable.Declaration{}, changes)
		require.NoError(t, err)
		set(t, table, timetable.Change{ID: fmt.Sprint("known ", lost), Text: "x"})
		taken := take(t, table)
		require.Len(t, taken, lost+1)
		before := client.ZRangeWithScores(t.Context(), upcoming, 0, -1).Val()

		for _, c := range changes {
			require.NoError(t, client.ZRem(t.Context(), upcoming, c.ID).Err())
		}
		count, longest, err := table.Behind(t.Context(), time.Minute)
		require.NoError(t, err)
		assert.Equal(t, lost, count)
		assert.Zero(t, longest, "it is not known")
		assert.Len(t, take(t, table), lost)
		after := client.ZRangeWithScores(t.Context(), upcoming, 0, -1).Val()
		require.Len(t, after, len(before))
		count, _, err = table.Behind(t.Context(), time.Minute)
		require.NoError(t, err)
		assert.Zero(t, count)
	}
}

// take takes all that is to be taken now.
func take(t *testing.T, table *timetable.Timetable) (taken []timetable.Definition) {
	t.Helper()
	for {
		page, now, next, err := table.Take(t.Context(), time.Hour)
		require.NoError(t, err)
		taken = append(taken, page...)
		if next.After(now) {
			return taken
		}
	}
}

func TestConcurrentTakesNeverShareASchedule(t *testing.T) {
	client := redistest.Client(t)
	table, _ := newTable(t, client)
	for i := range 50 {
		set(t, table, timetable.Change{ID: fmt.Sprint(i), Text: "x"})
	}
	var mu sync.Mutex
	seen := map[string]int{} // guarded by mu
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			taken, _, _, err := table.Take(t.Context(), time.Minute)
			assert.NoError(t, err)
			mu.Lock()
			defer mu.Unlock()
			for _, d := range taken {
				seen[d.ID]++
			}
		})
	}
	all.Wait()
	assert.Len(t, seen, 50)
	for id, times := range seen {
		assert.Equal(t, 1, times, id)
	}
}

func TestTakeLimitsTheBytesOfItsReply(t *testing.T) {
	table, _ := newTable(t, redistest.Client(t))
	const count = 8
	for i := range count {
		set(t, table, timetable.Change{ID: fmt.Sprint(i), Text: strings.Repeat("x", 400<<10)})
	}
	set(t, table, timetable.Change{ID: "one", Text: strings.Repeat("x", 3<<20)})
	seen := map[string]int{}
	for range count + 1 {
		taken, now, next, err := table.Take(t.Context(), time.Minute)
		require.NoError(t, err)
		bytes := 0
		for _, d := range taken {
			seen[d.ID]++
			bytes += len(d.Text)
		}
		require.True(t, bytes <= 1<<20 || len(taken) == 1, "%d have %d bytes", len(taken), bytes)
		if next.After(now) {
			break
		}
	}
	assert.Len(t, seen, count+1)
	for id, times := range seen {
		assert.Equal(t, 1, times, id)
	}
}
