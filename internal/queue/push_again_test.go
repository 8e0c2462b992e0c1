package queue

import (
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func TestAKeyWhoseHolderHasNoBodyIsFree(t *testing.T) {
	for _, policy := range []Duplicates{RejectDuplicates, IgnoreDuplicates, ReplaceDuplicates} {
		t.Run(string(policy), func(t *testing.T) {
			r := newScene(t)
			id := keyed(1, "k")
			require.NoError(t, r.Client.HSet(t.Context(), r.partition.Key(script.MessageKeys, ""), "k", keyed(0, "k")).Err())
			assert.Empty(t, r.pushBatch(1, policy, []Message{after(id, 60)}))
			assert.Equal(t, map[string]string{"scheduled " + id: "now+60s", "messages " + id: "body " + id, "keys k": id}, r.StateFromNow())
		})
	}
}

func TestPushDistinguishesBatchesWithTheSameNumber(t *testing.T) {
	r := newScene(t)
	r.pushBatch(1, RejectDuplicates, []Message{after("a", 60)})
	r.pushBatch(5, RejectDuplicates, []Message{after("e", 60)})
	before := r.State()
	for _, test := range []struct {
		number  int64
		id      string
		refused bool
	}{
		{5, "other", true}, // certain: the record is another batch's
		{5, "ee", true},
		{4, "older", false}, // a later batch has replaced its record
		{1, "a", false},
	} {
		_, err := r.partition.Push(t.Context(), Batch{
			Publisher: "p", Number: test.number, Duplicates: RejectDuplicates, Calls: [][]Message{{after(test.id, 60)}},
		})
		require.ErrorIs(t, err, ErrStalePublisher, "%d %s", test.number, test.id)
		assert.Equal(t, test.refused, script.NotStored(err), "%d %s", test.number, test.id)
		assert.Equal(t, before, r.State())
	}
	require.NoError(t, r.Client.HSet(t.Context(), r.partition.Key(script.Publishers, ""), "p", "garbage").Err())
	_, err := r.partition.Push(t.Context(), Batch{
		Publisher: "p", Number: 9, Duplicates: RejectDuplicates, Calls: [][]Message{{after("b", 60)}},
	})
	require.ErrorIs(t, err, ErrStalePublisher)
	assert.False(t, script.NotStored(err))
}

// TestALateCopyOfAFailedBatchIsRefused even if there is memory again, so that the certain error of
// Publish stays true.
func TestALateCopyOfAFailedBatchIsRefused(t *testing.T) {
	server := redistest.New(t, "--maxmemory-policy", "noeviction")
	r := newSceneOn(t, server)
	batch := Batch{Publisher: "p", Number: 1, Duplicates: RejectDuplicates, Calls: [][]Message{{due("a")}}}
	redistest.Command(t, r.Client, "CONFIG", "SET", "maxmemory", "1")
	_, err := r.partition.Push(t.Context(), batch)
	require.True(t, redis.HasErrorPrefix(err, "OOM"), "%v", err)
	require.True(t, script.NotStored(err))
	redistest.Command(t, r.Client, "CONFIG", "SET", "maxmemory", "0")
	_, err = r.partition.Push(t.Context(), batch)
	require.Error(t, err)
	assert.True(t, script.NotStored(err), "%v", err)
	assert.Empty(t, r.State())
	batch.Number = 2
	_, err = r.partition.Push(t.Context(), batch)
	require.NoError(t, err)
	assert.Contains(t, r.State(), "messages a")
}

// TestOnlyErrorsAfterTheRecordIsReadMeanNotStored: other errors leave the outcome unknown.
func TestOnlyErrorsAfterTheRecordIsReadMeanNotStored(t *testing.T) {
	server := redistest.New(t)
	r := newSceneOn(t, server)
	push := func(client redis.UniversalClient) error {
		q := r.through(client)
		number := batches.Add(1)
		_, err := q.Push(t.Context(), Batch{
			Publisher: "p", Number: number, Duplicates: ReplaceDuplicates, Calls: [][]Message{{after(keyed(int(number), "k"), 60)}},
		})
		return err
	}
	require.NoError(t, push(r.Client))
	for command, certain := range map[string]bool{
		"evalsha": false, "hget": false, "zadd": true, "hset": true, "zrem": false, "hdel": false, "time": false,
	} {
		err := push(r.Deny(server, command))
		require.Error(t, err, command)
		assert.Equal(t, certain, script.NotStored(err), "without %s: %v", command, err)
		require.NoError(t, push(r.Client))
	}
}

// TestAPushToAReplicaReturnsReadOnly because clients check for READONLY to find the new master.
func TestAPushToAReplicaReturnsReadOnly(t *testing.T) {
	master, replica := redistest.New(t), redistest.New(t)
	r := newSceneOn(t, replica)
	host, port, err := net.SplitHostPort(master.Addr)
	require.NoError(t, err)
	redistest.Command(t, r.Client, "REPLICAOF", host, port)
	impatient := redis.NewClient(&redis.Options{Addr: replica.Addr, MaxRetries: -1})
	t.Cleanup(func() { require.NoError(t, impatient.Close()) })
	var pushed error
	require.Eventually(t, func() bool {
		q := r.through(impatient)
		_, pushed = q.Push(t.Context(), Batch{Publisher: "p", Number: 1, Duplicates: RejectDuplicates, Calls: [][]Message{{due("a")}}})
		return !redis.HasErrorPrefix(pushed, "MASTERDOWN") && !redis.HasErrorPrefix(pushed, "LOADING")
	}, time.Minute, 10*time.Millisecond)
	require.True(t, redis.HasErrorPrefix(pushed, "READONLY"), "%v", pushed)
	assert.True(t, script.Transient(pushed))
	assert.False(t, script.NotStored(pushed))
}
