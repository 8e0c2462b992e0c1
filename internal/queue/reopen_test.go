package queue

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// reopen tells whether a batch of publisher p is stored.
func (r *scene) reopen(number int64, rejected ...Duplicate) bool {
	r.T.Helper()
	stored, got, err := r.partition.Reopen(r.Ctx(), Batch{Publisher: "p", Number: number, Calls: make([][]Message, 2)})
	require.NoError(r.T, err)
	assert.Equal(r.T, rejected, got)
	return stored
}

// TestABatchThatHasFailedIsStoredOnceItIsOpenedAgain, also if that is done twice, and while Redis is full.
func TestABatchThatHasFailedIsStoredOnceItIsOpenedAgain(t *testing.T) {
	r := newSceneOn(t, redistest.New(t, "--maxmemory-policy", "noeviction"))
	batch := Batch{Publisher: "p", Number: 5, Duplicates: RejectDuplicates, Calls: [][]Message{{after("a", 60)}}}
	redistest.Command(t, r.Client, "CONFIG", "SET", "maxmemory", "1")
	_, err := r.partition.Push(t.Context(), batch)
	require.True(t, script.Refused(err), "%v", err)
	assert.False(t, r.reopen(5))
	opened := r.State()
	assert.False(t, r.reopen(5))
	assert.Equal(t, opened, r.State())
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

func TestABatchThatIsStoredIsNotOpenedAgain(t *testing.T) {
	r := newScene(t)
	assert.False(t, r.reopen(5), "nothing is known")
	r.pushBatch(4, RejectDuplicates, []Message{after(keyed(1, "k"), 60)})
	r.pushBatch(5, RejectDuplicates, []Message{after(keyed(2, "k"), 60)}, []Message{after("a", 60)}) // the first call is rejected
	before := r.State()
	assert.True(t, r.reopen(5, Duplicate{Call: 0}))
	assert.False(t, r.reopen(4))
	assert.False(t, r.reopen(6))
	assert.Equal(t, before, r.State())
}
