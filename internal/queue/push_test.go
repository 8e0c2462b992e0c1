package queue

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// pushBatch stores a batch and returns which of its calls were rejected.
func (r *scene) pushBatch(number int64, duplicates Duplicates, calls ...[]Message) []int {
	r.T.Helper()
	rejected, err := r.partition.Push(r.Ctx(), Batch{Publisher: "p", Number: number, Duplicates: duplicates, Calls: calls})
	require.NoError(r.T, err)
	var list []int
	for _, d := range rejected {
		list = append(list, d.Call)
	}
	return list
}

func TestPushStoresBodyAndDueTime(t *testing.T) {
	r := newScene(t)
	r.push(due("a"), after("b", 60), Message{ID: "c", Delay: -5 * time.Millisecond, Body: nil})
	assert.Equal(t, map[string]string{
		"scheduled a": "now+0s", "messages a": "body a",
		"scheduled b": "now+60s", "messages b": "body b",
		"scheduled c": "now+0s", "messages c": "",
	}, r.State())
}

func TestPushIsNeverEarlyAndAtMostTwoMillisecondsLate(t *testing.T) {
	r := newScene(t)
	for i := range 200 {
		id := fmt.Sprint(i)
		before := r.Now()
		r.push(Message{ID: id, Delay: 37 * time.Millisecond})
		afterwards := r.Now()
		score, err := r.Client.ZScore(t.Context(), r.partition.Key(script.Scheduled, ""), id).Result()
		require.NoError(t, err)
		stored := time.UnixMilli(int64(score))
		require.False(t, stored.Before(before.Add(37*time.Millisecond)), "due %s, pushed after %s", stored, before)
		require.False(t, stored.After(afterwards.Add(38*time.Millisecond)), "due %s, pushed before %s", stored, afterwards)
	}
}

func TestPushKeepsFarDueTimesExact(t *testing.T) {
	r := newScene(t)
	before := r.Now().UnixMilli()
	r.push(Message{ID: "far", Delay: math.MaxInt64}) // 292 years
	score, err := r.Client.ZScore(t.Context(), r.partition.Key(script.Scheduled, ""), "far").Result()
	require.NoError(t, err)
	due := float64(before + math.MaxInt64/1_000_000 + 1)
	assert.InDelta(t, due, score, 10_000)
	assert.GreaterOrEqual(t, score, due)
}

func TestPushSentAgainStoresOnce(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.pushBatch(1, RejectDuplicates, []Message{due("a")})
	require.Equal(t, []string{"a#1"}, r.claim(g, "c", 10))
	_, err := g.Ack(t.Context(), done("a"))
	require.NoError(t, err)

	r.pushBatch(1, RejectDuplicates, []Message{due("a")})
	assert.Equal(t, map[string]string{"groups g": "member"}, r.State(), "the acked message must not come back")

	r.pushBatch(2, RejectDuplicates, []Message{due("b")})
	_, err = r.partition.Push(t.Context(), Batch{
		Publisher: "p", Number: 1, Duplicates: RejectDuplicates, Calls: [][]Message{{due("a")}},
	})
	require.ErrorIs(t, err, ErrStalePublisher)
	assert.False(t, script.Refused(err), "it may be stored")
	assert.NotContains(t, r.State(), "messages a", "a late older batch must not be stored")
	assert.Contains(t, r.State(), "messages b")
}

func TestPushSentAgainRejectsTheSameCalls(t *testing.T) {
	r := newScene(t)
	r.push(after(keyed(1, "k"), 60))
	calls := [][]Message{
		{after("x", 60)},
		{after("y", 60), after(keyed(2, "k"), 60)},
		{after(keyed(3, "free"), 60)},
	}
	number := batches.Add(1)
	first := r.pushBatch(number, RejectDuplicates, calls...)
	state := r.State()
	assert.Equal(t, []int{1}, first)
	assert.Equal(t, first, r.pushBatch(number, RejectDuplicates, calls...))
	assert.Equal(t, state, r.State())
}

func TestPushRejectsAWholeCallWhenOneKeyIsInUse(t *testing.T) {
	r := newScene(t)
	old, other := keyed(1, "k"), keyed(9, "k")
	refused := r.pushBatch(1, RejectDuplicates,
		[]Message{after(old, 60)},
		[]Message{after("x", 60), after(keyed(2, "k"), 60)},
		[]Message{after(keyed(3, "twice"), 60), after(keyed(4, "twice"), 60)},
		[]Message{after("y", 60)},
	)
	assert.Equal(t, []int{1, 2}, refused)
	assert.Equal(t, map[string]string{
		"scheduled " + old: "now+60s", "messages " + old: "body " + old, "keys k": old,
		"scheduled y": "now+60s", "messages y": "body y",
	}, r.State())
	assert.Equal(t, []int{0}, r.pushBatch(2, RejectDuplicates, []Message{due(other)}))
}

func TestPushIgnoresOnlyTheDuplicate(t *testing.T) {
	r := newScene(t)
	old := keyed(1, "k")
	r.pushBatch(1, IgnoreDuplicates, []Message{after(old, 60)})
	assert.Empty(t, r.pushBatch(2, IgnoreDuplicates, []Message{after(keyed(2, "k"), 5), after("x", 60)}))
	assert.Equal(t, map[string]string{
		"scheduled " + old: "now+60s", "messages " + old: "body " + old, "keys k": old,
		"scheduled x": "now+60s", "messages x": "body x",
	}, r.State())
}

func TestPushFailsOnAKeyOfAnotherTypeAndStoresNothing(t *testing.T) {
	for _, kind := range []string{"scheduled", "messages", "publishers", "keys", "taken"} {
		t.Run(kind, func(t *testing.T) {
			r := newScene(t)
			key := string(r.partition.Names) + ":" + kind
			require.NoError(t, r.Client.Set(t.Context(), key, "x", 0).Err())
			before := r.State()
			_, err := r.partition.Push(t.Context(), Batch{Publisher: "p", Number: 1, Duplicates: RejectDuplicates, Calls: [][]Message{{due(keyed(1, "k"))}}})
			var typeErr *script.KeyTypeError
			require.ErrorAs(t, err, &typeErr)
			assert.Equal(t, key, typeErr.Key)
			assert.Equal(t, "string", typeErr.Type)
			assert.Equal(t, before, r.State())
		})
	}
}

func TestPushWakesOnlyWhenSomethingIsDueEarlier(t *testing.T) {
	r := newScene(t)
	l := r.listen(r.group("g"), "c")
	r.push(after("a", 60))
	assert.InDelta(t, 60*time.Second, l().In, float64(time.Second))
	r.push(after("b", 120))
	r.push(after("c", 30))
	assert.InDelta(t, 30*time.Second, l().In, float64(time.Second), "the later message gives no hint")
}

func TestPushForgetsYesterdaysPublishers(t *testing.T) {
	r := newScene(t)
	key := r.partition.Key(script.Publishers, "")
	yesterday := r.Now().Add(-25 * time.Hour).UnixMilli()
	for i := range 10 {
		require.NoError(t, r.Client.HSet(t.Context(), key, fmt.Sprint("old", i), fmt.Sprintf("7 %d ", yesterday)).Err())
	}
	r.push(due("a"))
	fields, err := r.Client.HKeys(t.Context(), key).Result()
	require.NoError(t, err)
	assert.Equal(t, []string{"p"}, fields)
	ttl, err := r.Client.TTL(t.Context(), key).Result()
	require.NoError(t, err)
	assert.InDelta(t, 25*time.Hour, ttl, float64(time.Minute))
}
