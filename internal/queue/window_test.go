package queue

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

const minute = time.Minute

// pushWindow stores a batch whose keys are taken for a minute at least, and returns the
// call of each duplicate.
func (r *scene) pushWindow(number int64, duplicates Duplicates, calls ...[]Message) []int {
	r.T.Helper()
	rejected, err := r.pushFor(minute, number, duplicates, calls...)
	require.NoError(r.T, err)
	var list []int
	for _, d := range rejected {
		list = append(list, d.Call)
	}
	return list
}

func (r *scene) pushFor(window time.Duration, number int64, duplicates Duplicates, calls ...[]Message) ([]Duplicate, error) {
	return r.partition.Push(r.Ctx(), Batch{Publisher: "p", Number: number, Duplicates: duplicates, Window: window, Calls: calls})
}

// endWindow ends the window of a key, as time would.
func (r *scene) endWindow(key string) {
	r.T.Helper()
	require.NoError(r.T, r.Client.ZAddXX(r.Ctx(), r.partition.Key(script.Dedup, ""), redis.Z{Score: 1000, Member: key}).Err())
}

func TestCancelEndsTheWindow(t *testing.T) {
	r := newScene(t)
	first, second := keyed(1, "k"), keyed(2, "k")
	r.pushWindow(1, RejectDuplicates, []Message{after(first, 60)}, []Message{after(keyed(9, "other"), 60)})
	call := r.keyedCall(cancelScript, 1, minute)
	require.Equal(t, []any{"cancelled", first, "scheduled"}, call())
	assert.NotContains(t, r.State(), "dedup k")
	assert.Contains(t, r.State(), "dedup other")

	require.Empty(t, r.pushWindow(2, RejectDuplicates, []Message{due(second)}))
	g := r.group("g")
	require.Len(t, r.claim(g, "c", 1), 1)
	ack(t, g, second)
	require.NoError(t, r.Client.SRem(t.Context(), r.partition.Key(script.Groups, ""), "g").Err()) // the call does not know it
	state := r.State()
	require.Equal(t, "now+60s", state["dedup k"])
	assert.Equal(t, []any{"cancelled", first, "scheduled"}, call())
	assert.Equal(t, state, r.State(), "a call sent again leaves the next window alone")
	require.ErrorIs(t, errOf(r.partition.Cancel(t.Context(), "k")), ErrNotFound)
	assert.Equal(t, state, r.State(), "no message holds the key")
}

// TestAWindowIsNeverTooShort and at most 2 ms too long.
func TestAWindowIsNeverTooShort(t *testing.T) {
	const window = time.Minute + 37*time.Millisecond
	r := newScene(t)
	for i := range 100 {
		key := fmt.Sprint(i)
		before := r.Now()
		_, err := r.pushFor(window, int64(i+1), RejectDuplicates, []Message{due(keyed(i, key))})
		require.NoError(t, err)
		afterwards := r.Now()
		score, err := r.Client.ZScore(t.Context(), r.partition.Key(script.Dedup, ""), key).Result()
		require.NoError(t, err)
		until := time.UnixMilli(int64(score))
		require.False(t, until.Before(before.Add(window)), "until %s, pushed after %s", until, before)
		require.False(t, until.After(afterwards.Add(window+time.Millisecond)), "until %s, pushed before %s", until, afterwards)
	}
}

func TestWindowsThatAreOverAreDropped(t *testing.T) {
	r := newScene(t)
	key := r.partition.Key(script.Dedup, "")
	left := func() int64 { return r.Client.ZCard(t.Context(), key).Val() }
	const count, batch = 10_000, 100
	most, number := int64(0), int64(0)
	for n := 0; n < count; n += batch {
		number++
		var call []Message
		for i := range batch {
			call = append(call, after(keyed(n+i, fmt.Sprint("key ", n+i)), 3600))
		}
		_, err := r.pushFor(3*time.Millisecond, number, RejectDuplicates, call)
		require.NoError(t, err)
		most = max(most, left())
	}
	t.Logf("at most %d keys were taken at once", most)
	assert.Less(t, most, int64(2000))
	for n := 0; left() > 0; n++ { // a publisher without a window drops them, too
		require.Less(t, n, 300)
		number++
		r.pushBatch(number, RejectDuplicates, []Message{after(keyed(count+n, fmt.Sprint("late ", n)), 3600)})
	}
}

func TestMessagesWithoutAKeyPayNothingForWindows(t *testing.T) {
	r := newScene(t)
	key := r.partition.Key(script.Dedup, "")
	r.push(due("a"), due("b"))
	sizes, scores := r.Watch("ZCARD", key), r.Watch("ZSCORE", key)
	r.pushWindow(1<<40, IgnoreDuplicates, []Message{due("c"), due("d")})
	assert.Empty(t, sizes())
	r.pushBatch(1<<40+1, IgnoreDuplicates, []Message{due(keyed(1, "k")), due(keyed(2, "l")), due("e")})
	assert.Len(t, sizes(), 1, "without any window, one look suffices for all keys")
	assert.Empty(t, scores())
}

// TestAPushThatFailsAfterItTookKeysRestoresThem since a key that is taken for a message
// that was never stored would refuse the next attempt.
func TestAPushThatFailsAfterItTookKeysRestoresThem(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.pushWindow(1, RejectDuplicates, []Message{due(keyed(1, "before"))}, []Message{after(keyed(2, "other"), 60)})
	require.Len(t, r.claim(g, "c", 1), 1)
	ack(t, g, keyed(1, "before"))
	r.endWindow("before")
	state := r.State()
	_, err := r.partition.Run(t.Context(), failingPush(t), "", r.partition.pushArgs(Batch{
		Publisher: "q", Number: 1, Duplicates: RejectDuplicates, Window: minute,
		Calls: [][]Message{{due(keyed(3, "new"))}, {due(keyed(4, "before")), due("plain")}},
	}))
	require.ErrorContains(t, err, "seeded")
	assert.True(t, script.Refused(err), "%v", err)
	assert.Equal(t, state, r.State())
}

// failingPush is push.lua with an error after it has written all but the record.
func failingPush(t *testing.T) *script.Script {
	t.Helper()
	const end = "  local result = own\n"
	source, err := lua.ReadFile("lua/push.lua")
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(source), end))
	failing := strings.Replace(string(source), end, "  error('seeded')\n"+end, 1)
	return script.New(fstest.MapFS{"lua/push.lua": {Data: []byte(failing)}}, "push")
}

func TestWithoutMemoryAPushTakesNoKey(t *testing.T) {
	server := redistest.New(t, "--maxmemory-policy", "noeviction")
	r := newSceneOn(t, server)
	r.pushWindow(1, RejectDuplicates, []Message{after(keyed(1, "k"), 60)})
	state := r.State()
	redistest.Command(t, r.Client, "CONFIG", "SET", "maxmemory", "1")
	_, err := r.pushFor(minute, 2, RejectDuplicates, []Message{due(keyed(2, "l"))})
	require.True(t, redis.HasErrorPrefix(err, "OOM"), "%v", err)
	assert.True(t, script.Refused(err))
	assert.Equal(t, state, r.State())
	require.NoError(t, errOf(r.partition.Cancel(t.Context(), "k")))
	assert.Empty(t, r.State(), "a message can be taken back, and its window")
}
