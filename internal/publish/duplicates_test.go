package publish

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// withPolicy returns a message with a duplicate policy. Its name is its key.
func withPolicy(policy queue.Duplicates, key string) Message {
	return Message{Name: key, Traits: script.Traits{Key: key}, Duplicates: policy}
}

func TestACallReportsIgnoredDuplicatesOfAllPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []observe.Published
		f := &fakeTopic{partitions: 2}
		f.observer.Published = func(e observe.Published) { events = append(events, e) }
		p := f.publisher(t)
		var messages []Message
		for _, m := range append(inPartition(0), inPartition(1)...) {
			fresh, duplicate := withPolicy(queue.IgnoreDuplicates, m.PartitionKey), withPolicy(queue.IgnoreDuplicates, m.PartitionKey)
			fresh.Name = "fresh"
			messages = append(messages, fresh, duplicate)
		}
		keys := []string{messages[1].Key, messages[3].Key}
		f.duplicates = keys
		require.NoError(t, p.Publish(t.Context(), far, "t", messages))
		require.NoError(t, outcomeOf(p.async(t.Context(), messages...)))
		require.NoError(t, p.Close(t.Context()))
		require.Len(t, events, 2)
		for _, e := range events {
			assert.ElementsMatch(t, keys, e.Ignored)
			assert.Equal(t, 4, e.Messages)
		}
	})
}

func TestABatchHasOneDuplicatePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{latency: time.Millisecond}
		p := f.publisher(t)
		calls := []*Future{p.async(t.Context(), withPolicy(queue.RejectDuplicates, "a"))}
		synctest.Wait() // it is on its way, and the others collect in batches
		for _, messages := range [][]Message{
			{withPolicy(queue.IgnoreDuplicates, "b")},
			{withPolicy(queue.IgnoreDuplicates, "c"), withPolicy(queue.ReplaceDuplicates, "d"), withPolicy(queue.ReplaceDuplicates, "e")},
			{withPolicy(queue.ReplaceDuplicates, "f")},
		} {
			calls = append(calls, p.async(t.Context(), messages...))
		}
		for _, call := range calls {
			require.NoError(t, outcomeOf(call))
		}
		require.NoError(t, p.Close(t.Context()))
		var policies []queue.Duplicates
		for _, b := range f.batches {
			policies = append(policies, b.Duplicates)
		}
		assert.Equal(t, []queue.Duplicates{queue.RejectDuplicates, queue.IgnoreDuplicates, queue.ReplaceDuplicates}, policies)
		assert.Equal(t, []string{"a", "b", "c", "d", "e", "f"}, f.names[0], "in their order")
	})
}
