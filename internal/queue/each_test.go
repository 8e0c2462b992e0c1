package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

func TestReadingAnUnusedTopicLeavesNoTrace(t *testing.T) {
	server := redistest.New(t)
	topic := newStore(t, server.Client(t)).Topic("mistyped")
	number, err := topic.Partitions(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, number)
	require.NoError(t, topic.Each(t.Context(), func(context.Context, *Partition) error { return nil }))
	require.ErrorIs(t, errOf(topic.Cancel(t.Context(), "k")), ErrNotFound)
	require.ErrorIs(t, errOf(topic.Reschedule(t.Context(), "k", time.Second)), ErrNotFound)
	keys, err := server.Client(t).Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	assert.Empty(t, keys)
}

func TestEachVisitsAllPartitionsAtOnceAndReportsEachErrorOnce(t *testing.T) {
	topic := newTopic(t)
	_, err := topic.Raise(t.Context(), 40)
	require.NoError(t, err)
	var together sync.WaitGroup
	together.Add(40)
	var mu sync.Mutex
	visited := map[*Partition]bool{}
	err = topic.again().Each(t.Context(), func(_ context.Context, p *Partition) error {
		together.Done()
		together.Wait() // for all other calls
		mu.Lock()
		defer mu.Unlock()
		visited[p] = true
		return fmt.Errorf("error %d", len(visited)%2)
	})
	assert.Len(t, visited, 40)
	require.Error(t, err)
	assert.Len(t, err.Error(), len("error 0\nerror 1"))
}

func TestAKeyIsFoundInWhicheverPartitionItIs(t *testing.T) {
	topic := newTopic(t)
	_, err := topic.Raise(t.Context(), 3)
	require.NoError(t, err)
	for n := range 3 {
		_, err := topic.Partition(n).Push(t.Context(), Batch{
			Publisher: "p", Number: 1, Duplicates: RejectDuplicates,
			Calls: [][]Message{{after(keyed(n, fmt.Sprint("k", n)), 60)}},
		})
		require.NoError(t, err)
	}
	for n := range 3 {
		key := fmt.Sprint("k", n)
		require.NoError(t, errOf(topic.again().Reschedule(t.Context(), key, time.Minute)))
		require.NoError(t, errOf(topic.again().Cancel(t.Context(), key)))
		require.ErrorIs(t, errOf(topic.Cancel(t.Context(), key)), ErrNotFound)
	}
}

func TestAFailureInOnePartitionIsNotHiddenByAnother(t *testing.T) {
	topic := newTopic(t)
	_, err := topic.Raise(t.Context(), 2)
	require.NoError(t, err)
	broken := topic.Partition(1).Key(script.Publishers, "")
	require.NoError(t, topic.store.Redis().Set(t.Context(), broken, "x", 0).Err())
	var wrong *script.KeyTypeError
	require.True(t, errors.As(errOf(topic.Cancel(t.Context(), "k")), &wrong))
	assert.Equal(t, broken, wrong.Key)
}

func TestAStoreWarnsOnce(t *testing.T) {
	server := redistest.New(t)
	for range 2 { // each store warns
		store, err := NewStore(server.Client(t), "test", observe.Observer{})
		require.NoError(t, err)
		assert.Empty(t, store.Warnings(), "no check has been made yet")
		_, err = store.Topic("t").Partitions(t.Context())
		require.NoError(t, err)
		assert.Len(t, store.Warnings(), 1)
		assert.Empty(t, store.Warnings())
	}
}
