package queue

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// outcome reports whether a batch of publisher p is stored.
func (r *scene) outcome(number int64, rejected ...Duplicate) bool {
	r.T.Helper()
	stored, got, err := r.partition.Outcome(r.Ctx(), Batch{Publisher: "p", Number: number, Calls: make([][]Message, 2)})
	require.NoError(r.T, err)
	assert.Equal(r.T, rejected, got)
	return stored
}

// reopen reports whether a batch of publisher p is stored.
func (r *scene) reopen(number int64, rejected ...Duplicate) bool {
	r.T.Helper()
	stored, got, err := r.partition.Reopen(r.Ctx(), Batch{Publisher: "p", Number: number, Calls: make([][]Message, 2)})
	require.NoError(r.T, err)
	assert.Equal(r.T, rejected, got)
	return stored
}

// record returns the record of publisher p, without the time.
func (r *scene) record() string {
	r.T.Helper()
	number, rest, _ := strings.Cut(r.Client.HGet(r.Ctx(), r.partition.Key(script.Publishers, ""), "p").Val(), " ")
	_, result, _ := strings.Cut(rest, " ")
	return strings.TrimSpace(number + " " + result)
}

func TestTheOutcomeOfABatchIsReadFromItsRecord(t *testing.T) {
	r := newSceneOn(t, redistest.New(t, "--maxmemory-policy", "noeviction"))
	r.pushBatch(4, RejectDuplicates, []Message{after(keyed(1, "k"), 60)})
	r.pushBatch(5, RejectDuplicates, []Message{after(keyed(2, "k"), 60)}, []Message{after("a", 60)}) // the first call is rejected
	before, record := r.State(), r.record()
	for range 2 {
		assert.True(t, r.outcome(5, Duplicate{Call: 0}))
	}
	assert.Equal(t, record, r.record())
	redistest.Command(t, r.Client, "CONFIG", "SET", "maxmemory", "1")
	_, err := r.partition.Push(r.Ctx(), Batch{Publisher: "p", Number: 6, Duplicates: RejectDuplicates, Calls: [][]Message{{after("b", 60)}}})
	require.True(t, script.NotStored(err), "%v", err)
	assert.False(t, r.outcome(6), "it has failed")
	assert.False(t, r.outcome(7), "it can be barred while Redis is full")
	redistest.Command(t, r.Client, "CONFIG", "SET", "maxmemory", "0")
	assert.Equal(t, "7 -", r.record())
	assert.Equal(t, before, r.State())

	require.NoError(t, r.Client.HSet(r.Ctx(), r.partition.Key(script.Publishers, ""), "p", "garbage").Err())
	_, _, err = r.partition.Outcome(r.Ctx(), Batch{Publisher: "p", Number: 8})
	require.ErrorIs(t, err, ErrStalePublisher)
	assert.Equal(t, "garbage", r.Client.HGet(r.Ctx(), r.partition.Key(script.Publishers, ""), "p").Val())
}

// TestAFailedBatchIsStoredAfterItIsReopened, even if it is reopened twice, and while Redis is full.
func TestAFailedBatchIsStoredAfterItIsReopened(t *testing.T) {
	r := newSceneOn(t, redistest.New(t, "--maxmemory-policy", "noeviction"))
	batch := Batch{Publisher: "p", Number: 5, Duplicates: RejectDuplicates, Calls: [][]Message{{after("a", 60)}}}
	redistest.Command(t, r.Client, "CONFIG", "SET", "maxmemory", "1")
	_, err := r.partition.Push(t.Context(), batch)
	require.True(t, script.NotStored(err), "%v", err)
	for range 2 {
		assert.False(t, r.reopen(5))
		assert.Equal(t, "4 -", r.record())
	}
	redistest.Command(t, r.Client, "CONFIG", "SET", "maxmemory", "0")
	before := batch
	before.Number = 4
	_, err = r.partition.Push(t.Context(), before)
	require.ErrorIs(t, err, ErrStalePublisher, "a copy of an earlier batch")

	_, err = r.partition.Push(t.Context(), batch)
	require.NoError(t, err)
	stored := r.State()
	assert.True(t, r.reopen(5))
	_, err = r.partition.Push(t.Context(), batch)
	require.NoError(t, err)
	assert.Equal(t, stored, r.State())
}

func TestAStoredBatchIsNotReopened(t *testing.T) {
	r := newScene(t)
	assert.False(t, r.reopen(4), "nothing is known")
	r.pushBatch(4, RejectDuplicates, []Message{after(keyed(1, "k"), 60)})
	r.pushBatch(5, RejectDuplicates, []Message{after(keyed(2, "k"), 60)}, []Message{after("a", 60)}) // the first call is rejected
	before := r.State()
	assert.True(t, r.reopen(5, Duplicate{Call: 0}))
	assert.False(t, r.reopen(4))
	assert.True(t, r.reopen(5, Duplicate{Call: 0}))
	assert.False(t, r.reopen(6))
	assert.Equal(t, before, r.State())
}

// TestTheOutcomeOfADifferentBatchIsNotReturned although the number is the same: a publisher whose memory was set back uses
// numbers twice.
func TestTheOutcomeOfADifferentBatchIsNotReturned(t *testing.T) {
	r := newScene(t)
	r.pushBatch(4, RejectDuplicates, []Message{after("a", 60)})
	before, record := r.State(), r.record()
	_, _, err := r.partition.Outcome(r.Ctx(), Batch{Publisher: "p", Number: 4, Calls: [][]Message{{after("b", 60)}}})
	require.ErrorIs(t, err, ErrStalePublisher)
	assert.Equal(t, before, r.State())
	assert.Equal(t, record, r.record())
	stored, _, err := r.partition.Outcome(r.Ctx(), Batch{Publisher: "p", Number: 4, Calls: [][]Message{{after("a", 60)}}})
	require.NoError(t, err)
	assert.True(t, stored)
}
