package publish

import (
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

func TestCloseRemovesUnneededPublisherRecords(t *testing.T) {
	f := &fakeTopic{partitions: 2}
	p := f.publisher(t)
	for range 3 {
		require.NoError(t, p.Publish(t.Context(), far, "t", one("a")))
	}
	name := f.batches[0].Publisher
	assert.Empty(t, f.deletedRecords)
	require.NoError(t, p.Close(t.Context()))
	assert.ElementsMatch(t, []string{"0 " + name, "1 " + name}, f.deletedRecords)
	require.NoError(t, p.Close(t.Context()))
	assert.Len(t, f.deletedRecords, 2)

	p = f.publisher(t)
	require.ErrorIs(t, errOf(p.Cancel(t.Context(), "t", "k")), queue.ErrNotFound)
	require.NoError(t, p.Close(t.Context()))
	assert.True(t, f.callersOver.Load())
}

// TestARecordIsKeptWhileACopyOfItsBatchMayArrive, whatever was sent before or after that batch.
func TestARecordIsKeptWhileACopyOfItsBatchMayArrive(t *testing.T) {
	for name, f := range map[string]*fakeTopic{
		"a failed attempt":      {answers: []error{nil, loadingError(), nil}},
		"an unknown outcome":    {answers: []error{nil, io.ErrUnexpectedEOF, nil}},
		"a copy of the client":  {repeatable: func(b queue.Batch) bool { return b.Number == 2 }},
		"of the first batch":    {repeatable: func(b queue.Batch) bool { return b.Number == 1 }},
		"of the last batch":     {repeatable: func(b queue.Batch) bool { return b.Number == 3 }},
		"an error of the batch": {answers: []error{script.NotStoredError("refused")}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := f.publisher(t)
				for range 3 {
					_ = p.Publish(t.Context(), far, "t", one("a"))
				}
				require.NoError(t, p.Close(context.Background()))
				assert.Empty(t, f.deletedRecords)
			})
		})
	}
}

func TestTheRecordOfACancelledCallIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{latency: time.Minute}
		p := f.publisher(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, p.Publish(ctx, far, "t", one("a")), ErrOutcomeUnknown)
		require.NoError(t, p.Close(context.Background()))
		assert.Empty(t, f.deletedRecords)
	})
}

func TestCloseDoesNotWaitLongToRemoveRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{deleteRecords: func(ctx context.Context) { <-ctx.Done() }}
		p := f.publisher(t)
		for n := range 2 * maxBackground {
			require.NoError(t, p.Publish(t.Context(), far, fmt.Sprint(n), one("a")))
		}
		start := time.Now()
		require.NoError(t, p.Close(context.Background()))
		assert.Equal(t, deleteRecordsTimeout, time.Since(start))
	})
}

func TestRememberedPublisherRecordsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{}
		p := f.publisher(t)
		for range 2 {
			for n := range maxRecords + 10 {
				require.NoError(t, p.Publish(t.Context(), far, fmt.Sprint(n), one("a")))
			}
		}
		require.NoError(t, p.Close(context.Background()))
		assert.Len(t, f.deletedRecords, maxRecords)
	})
}
