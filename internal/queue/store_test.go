package queue

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

func TestTheObserverSeesEachCall(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	var calls []observe.Called
	store, err := NewStore(client, "test", observe.Observer{Called: func(c observe.Called) { calls = append(calls, c) }})
	require.NoError(t, err)
	topic := store.Topic(t.Name() + newScene(t).partition.Topic())
	told := func() observe.Called {
		t.Helper()
		require.Len(t, calls, 1)
		call := calls[0]
		calls = nil
		assert.Equal(t, topic.name, call.Topic)
		assert.Positive(t, call.Took)
		assert.Less(t, call.Took, time.Minute)
		call.Topic, call.Took = "", 0
		return call
	}
	require.NoError(t, topic.Advance(t.Context(), RulesVersion))
	assert.Equal(t, observe.Called{Partition: -1, Script: "enlist"}, told())
	require.NoError(t, topic.Enlist(t.Context()))
	assert.Empty(t, calls, "the second call asks Redis nothing")
	_, err = topic.Partitions(t.Context())
	require.NoError(t, err)
	assert.Equal(t, observe.Called{Script: "raise"}, told())
	g := topic.Partition(3).Group("g")
	require.NoError(t, g.Register(t.Context()))
	assert.Equal(t, observe.Called{Partition: 3, Script: "register"}, told())
	_, err = g.Claim(t.Context(), Request{Consumer: "c", Number: 1, Limit: 1, Lease: lease})
	require.NoError(t, err)
	assert.Equal(t, observe.Called{Partition: 3, Script: "claim"}, told())

	batch := Batch{Publisher: "p", Number: 1, Duplicates: RejectDuplicates, Calls: [][]Message{{due("a")}}}
	batch.Replicas, batch.ReplicaTimeout = 1, time.Millisecond
	var shortfall *script.ReplicationError
	_, err = topic.Partition(3).Push(t.Context(), batch)
	require.ErrorAs(t, err, &shortfall)
	assert.Equal(t, observe.Called{Partition: 3, Script: "push", Err: shortfall}, told())

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = g.Ack(ctx, done("a"))
	require.ErrorIs(t, err, context.Canceled)
	call := told()
	assert.Equal(t, "ack", call.Script)
	assert.Equal(t, err, call.Err)
}
