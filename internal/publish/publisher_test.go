package publish

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

func TestAddingAPartitionMovesKeysOnlyToIt(t *testing.T) {
	const keys = 10_000
	for partitions := 1; partitions < 30; partitions++ {
		counts := make([]int, partitions+1)
		for n := range keys {
			key := fmt.Sprint("order-", n)
			before, after := queue.PartitionOf(key, partitions), queue.PartitionOf(key, partitions+1)
			counts[after]++
			if after != before {
				require.Equal(t, partitions, after, "%s moved between old partitions", key)
			}
		}
		for p, n := range counts {
			even := keys / (partitions + 1)
			require.InDelta(t, even, n, float64(even)/4+50, "keys of partition %d of %d", p, partitions+1)
		}
	}
}

var errRefused = script.NotStoredError("OOM command not allowed")

// outgoing is what a Publish call sends.
type outgoing []Message

func (o *outgoing) add(key string, names ...string) {
	for _, name := range names {
		*o = append(*o, Message{Name: name, PartitionKey: key})
	}
}

func TestEachUnkeyedCallGoesToOnePartitionInTurn(t *testing.T) {
	f := &fakeTopic{partitions: 4}
	p := f.publisher(t)
	for n := range 8 {
		var call outgoing
		call.add("", fmt.Sprint(n, "a"), fmt.Sprint(n, "b"))
		require.NoError(t, p.Publish(t.Context(), far, "t", call))
	}
	require.NoError(t, p.Close(t.Context()))
	for n := range 4 {
		require.Len(t, f.names[n], 4, "partition %d", n)
		assert.Equal(t, f.names[n][0][:1]+"b", f.names[n][1], "a call stays together")
	}
}

func TestMessagesOfAKeyShareAPartitionInOrder(t *testing.T) {
	f := &fakeTopic{partitions: 4}
	p := f.publisher(t)
	var call outgoing
	for n := range 100 {
		call.add(fmt.Sprint(n%10), fmt.Sprintf("%d/%02d", n%10, n))
	}
	for n := range call { // a message key goes first
		if n%2 == 0 {
			call[n].Key, call[n].PartitionKey = call[n].PartitionKey, "another"
		}
	}
	require.NoError(t, p.Publish(t.Context(), far, "t", call))
	require.NoError(t, p.Close(t.Context()))
	last, total := map[string]string{}, 0
	for partition, names := range f.names {
		for _, name := range names {
			key := name[:1]
			assert.Equal(t, queue.PartitionOf(key, 4), partition)
			assert.Less(t, last[key], name)
			last[key] = name
		}
		total += len(names)
	}
	assert.Equal(t, 100, total)
}

func TestIDsSortInTheOrderOfTheMessages(t *testing.T) {
	f := &fakeTopic{}
	p := f.publisher(t)
	for n := range 3 {
		var call outgoing
		call.add("", fmt.Sprint(n, "a"), fmt.Sprint(n, "b"))
		call[1].Key = "k"
		require.NoError(t, p.Publish(t.Context(), far, "t", call))
	}
	require.NoError(t, p.Close(t.Context()))
	last := ""
	for _, b := range f.batches {
		for _, m := range b.Calls[0] {
			assert.Less(t, last, m.ID)
			last = m.ID
		}
		assert.Equal(t, "k", b.Calls[0][1].Key)
	}
}

func TestAPartialErrorListsTheMissingMessages(t *testing.T) {
	bad := queue.PartitionOf("bad", 4)
	f := &fakeTopic{partitions: 4, fail: func(p int) error {
		if p == bad {
			return errRefused
		}
		return nil
	}}
	p := f.publisher(t)
	good := "good"
	for n := 0; queue.PartitionOf(good, 4) == bad; n++ {
		good = fmt.Sprint("good", n)
	}
	var call outgoing
	call.add(good, "0")
	call.add("bad", "1", "2")
	call.add(good, "3")
	err := p.Publish(t.Context(), far, "t", call)
	var partial *PartialError
	require.ErrorAs(t, err, &partial)
	require.ErrorIs(t, err, errRefused)
	assert.Equal(t, 2, partial.Stored)
	assert.Equal(t, 4, partial.Total)
	assert.Equal(t, []int{1, 2}, partial.Missing)
	assert.Equal(t, []string{"0", "3"}, f.names[queue.PartitionOf(good, 4)])

	var last outgoing
	last.add("bad", "4")
	err = p.Publish(t.Context(), far, "t", last)
	require.ErrorIs(t, err, errRefused)
	assert.NotErrorAs(t, err, &partial, "nothing is stored")
}

// TestAPartialErrorHasNoReplicationError of those that are stored: it says that all are.
func TestAPartialErrorHasNoReplicationError(t *testing.T) {
	shortfall := &script.ReplicationError{Want: 1}
	f := &fakeTopic{partitions: 2, fail: func(p int) error {
		if p == queue.PartitionOf("bad", 2) {
			return errRefused
		}
		return shortfall
	}}
	p := f.publisher(t)
	var call outgoing
	for n := range 8 {
		call.add(fmt.Sprint("key-", n), fmt.Sprint(n))
	}
	call.add("bad", "8")
	err := p.Publish(t.Context(), far, "t", call)
	var partial *PartialError
	require.ErrorAs(t, err, &partial)
	require.ErrorIs(t, err, errRefused)
	assert.NotErrorIs(t, err, shortfall)
}

func TestTooFewReplicasDoNotStopALargeCall(t *testing.T) {
	shortfall := &script.ReplicationError{Want: 1}
	f := &fakeTopic{fail: func(int) error { return shortfall }}
	p := f.publisher(t)
	var call outgoing
	for n := range maxMessages + 1 {
		call.add("", fmt.Sprint(n))
	}
	err := p.Publish(t.Context(), far, "t", call)
	require.ErrorIs(t, err, shortfall)
	var partial *PartialError
	require.NotErrorAs(t, err, &partial, "all are stored")
	assert.Len(t, f.names[0], maxMessages+1)
}

func TestSplitKeepsOrderAndBounds(t *testing.T) {
	var messages []queue.Message
	for i := range 2 * maxMessages {
		messages = append(messages, queue.Message{ID: fmt.Sprint(i)})
	}
	large := make([]byte, maxBytes*2/3)
	messages = append(messages, queue.Message{ID: "large", Body: large}, queue.Message{ID: "larger", Body: large})
	var joined []queue.Message
	var sizes []int
	for _, piece := range split(messages) {
		sizes = append(sizes, len(piece))
		joined = append(joined, piece...)
	}
	assert.Equal(t, []int{maxMessages, maxMessages, 1, 1}, sizes)
	assert.Equal(t, messages, joined)
	assert.Empty(t, split(nil))
}

func TestCloseWaitsForOtherCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := (&fakeTopic{}).publisher(t)
		release := make(chan struct{})
		go func() { assert.NoError(t, p.Do(func() error { <-release; return nil })) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, p.Close(ctx), context.DeadlineExceeded)
		close(release)
		require.NoError(t, p.Close(t.Context()))
		require.ErrorIs(t, p.Do(func() error { panic("called") }), ErrClosed)
	})
}
