package queue

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// pushBatch stores a batch and returns the call of each duplicate.
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

// TestAReopenedBatchStillReportsItsIgnoredDuplicates because the inbox needs them.
func TestAReopenedBatchStillReportsItsIgnoredDuplicates(t *testing.T) {
	r := newScene(t)
	r.push(after(keyed(1, "k"), 60))
	batch := Batch{Publisher: "q", Number: 1, Duplicates: IgnoreDuplicates, Calls: [][]Message{{after("a", 60)}, {after(keyed(2, "k"), 60)}}}
	first, err := r.partition.Push(t.Context(), batch)
	require.NoError(t, err)
	stored, again, err := r.partition.Reopen(t.Context(), batch)
	require.NoError(t, err)
	assert.True(t, stored)
	assert.Equal(t, []Duplicate{{1, 0}}, first)
	assert.Equal(t, first, again)
}

// watched returns the names of scripts that calls of the partition run from now on.
func (r *scene) watched() *[]string {
	r.T.Helper()
	var called []string
	s := NewStore(r.Client, "test", observe.Observer{Called: func(c observe.Called) { called = append(called, c.Script) }})
	r.partition = NewPartition(s, r.partition.Topic(), r.partition.Number())
	return &called
}

func TestMessagesWithoutAKeyUsePutBeforePush(t *testing.T) {
	long := keyed(1, "k")
	for name, c := range map[string]struct {
		record string // of the publisher; none if it is empty
		calls  [][]Message
		want   []string
	}{
		"usual":                    {"6 %now ok", [][]Message{{due("a"), due("b")}, {after("c", 60)}}, []string{"put"}},
		"one has a key":            {"6 %now ok", [][]Message{{due("a")}, {after(long, 60)}}, []string{"push"}},
		"no record":                {"", [][]Message{{due("a")}}, []string{"put", "push"}},
		"a record of another hour": {"6 1000 ok", [][]Message{{due("a")}}, []string{"put", "push"}},
		"the batch is stored":      {"7 %now a", [][]Message{{due("a")}}, []string{"put", "push"}},
		"a later batch is stored":  {"8 %now z", [][]Message{{due("a")}}, []string{"put", "push"}},
		"a record that is damaged": {"garbage", [][]Message{{due("a")}}, []string{"put", "push"}},
		"the batch was refused":    {"7 %now a failed OOM", [][]Message{{due("a")}}, []string{"put", "push"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newScene(t)
			if c.record != "" {
				now := strconv.FormatInt(r.Now().UnixMilli(), 10)
				require.NoError(t, r.Client.HSet(t.Context(), r.partition.Key(script.Publishers, ""), "p",
					strings.ReplaceAll(c.record, "%now", now)).Err())
			}
			called := r.watched()
			_, _ = r.partition.Push(t.Context(), Batch{Publisher: "p", Number: 7, Duplicates: RejectDuplicates, Calls: c.calls})
			assert.Equal(t, c.want, *called)
		})
	}
}

func TestATornPutIsStoredOnceWhenItIsSentAgain(t *testing.T) {
	batch := Batch{Publisher: "p", Number: 1 << 40, Duplicates: RejectDuplicates, Calls: [][]Message{{due("a"), after("b", 60)}}}
	tornEverywhere(t, "put", func(r *scene) {
		r.group("g")
		r.push(after("before", 60))
		stored, err := r.partition.put(r.Ctx(), batch)
		require.NoError(r.T, err)
		require.True(r.T, stored)
	}, func(r *scene) {
		require.NoError(r.T, errOf(r.partition.Push(r.Ctx(), batch)))
		r.Reload()
		g := r.partition.Group("g")
		require.Equal(r.T, []string{"a#1"}, r.claim(g, "c", 10))
		ack(r.T, g, "a")
		require.NoError(r.T, errOf(r.partition.Push(r.Ctx(), batch)))
		assert.Equal(r.T, map[string]string{
			"groups g": "member", "scheduled before": "now+60s", "messages before": "body before",
			"scheduled b": "now+60s", "messages b": "body b",
		}, r.StateFromNow())
	})
}

func TestAPutWaitsForReplicasAsAPushDoes(t *testing.T) {
	r := newScene(t)
	r.push(due("first"))
	_, err := r.partition.Push(t.Context(), Batch{
		Publisher: "p", Number: 1 << 40, Duplicates: RejectDuplicates, Calls: [][]Message{{due("a")}},
		Replicas: 1, ReplicaTimeout: time.Millisecond,
	})
	var shortfall *script.ReplicationError
	require.ErrorAs(t, err, &shortfall)
	assert.Contains(t, r.State(), "messages a", "it is stored all the same")
}

// TestARefusedPutChangesNothing, so push can return the error.
func TestARefusedPutChangesNothing(t *testing.T) {
	server := redistest.Shared(t)
	batch := Batch{Publisher: "p", Number: 1 << 40, Duplicates: RejectDuplicates, Calls: [][]Message{{due("a"), after("b", 60)}}}
	for _, command := range []string{"hset", "zadd", "zrange"} {
		r := newSceneOn(t, server)
		r.push(after("before", 60))
		before := r.State()
		stored, err := r.through(r.Deny(server, command)).put(t.Context(), batch)
		require.NoError(t, err, command)
		assert.False(t, stored, command)
		assert.Equal(t, before, r.State(), command)
	}
	r := newSceneOn(t, server) // an interrupted call has stored "a", and a consumer holds it
	g := r.group("g")
	r.push(due("a"))
	require.Equal(t, []string{"a#1"}, r.claim(g, "c", 1))
	before := r.State()
	stored, err := r.through(r.Deny(server, "hset")).put(t.Context(), batch)
	require.NoError(t, err)
	assert.False(t, stored)
	assert.Equal(t, before, r.State())
}
