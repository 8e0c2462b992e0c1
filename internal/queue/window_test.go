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
)

const minute = time.Minute

// pushWindow stores a batch whose keys are in use for a minute at least, and returns the call of
// each duplicate.
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

// endWindow ends the window of a key before its time.
func (r *scene) endWindow(key string) {
	r.T.Helper()
	require.NoError(r.T, r.Client.ZAddXX(r.Ctx(), r.partition.Key(script.Dedup, ""), redis.Z{Score: 1000, Member: key}).Err())
}

func TestExpiredWindowsAreRemoved(t *testing.T) {
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
	for n := 0; left() > 0; n++ { // a publisher without a window removes them, too
		require.Less(t, n, 300)
		number++
		r.pushBatch(number, RejectDuplicates, []Message{after(keyed(count+n, fmt.Sprint("late ", n)), 3600)})
	}
}

func TestMessagesWithoutAKeySkipWindowChecks(t *testing.T) {
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

// TestAFailedPushRestoresTheKeysItTook because a key that is in use for a message that was never stored would reject the next
// attempt.
func TestAFailedPushRestoresTheKeysItTook(t *testing.T) {
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
	assert.True(t, script.NotStored(err), "%v", err)
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
