package queue

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// cut is a connection that breaks, if it is asked to, when the next reply is read.
type cut struct {
	net.Conn
	next *atomic.Bool
}

func (c cut) Read(b []byte) (int, error) {
	if c.next.CompareAndSwap(true, false) {
		_, _ = c.Conn.Read(b) // Redis has run the call
		return 0, io.EOF
	}
	return c.Conn.Read(b)
}

// TestABatchThatTheClientSendsTwiceIsRepeatable: the client hides that it has lost a reply.
func TestABatchThatTheClientSendsTwiceIsRepeatable(t *testing.T) {
	t.Parallel()
	r := newScene(t)
	var next atomic.Bool
	options := *r.Client.Options()
	options.MaxRetries, options.ReadTimeout = 2, time.Second // it may read on after the cut

	options.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return cut{conn, &next}, err
	}
	client := redis.NewClient(&options)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	p, number := r.through(client), int64(0)
	push := func(replicas int, id string) bool {
		number++
		var repeatable atomic.Bool
		batch := Batch{Publisher: "p", Number: number, Duplicates: RejectDuplicates, Calls: [][]Message{{due(id)}}, Repeatable: &repeatable}
		batch.Replicas, batch.ReplicaTimeout = replicas, 20*time.Millisecond
		_, err := p.Push(t.Context(), batch)
		if replicas == 0 {
			require.NoError(t, err)
		}
		return repeatable.Load()
	}
	push(0, keyed(1, "a")) // so that Redis has the scripts
	push(0, "b")
	assert.False(t, push(0, keyed(2, "b")), "by push")
	assert.False(t, push(0, "c"), "by put")
	assert.True(t, push(1, "d"), "with too few replicas")
	next.Store(true)
	assert.True(t, push(0, keyed(3, "c")))
	next.Store(true)
	assert.True(t, push(0, "e"))
	require.False(t, next.Load())
	assert.False(t, push(0, "f"), "each batch counts for itself")
}

func TestUnrecordRemovesTheRecordsOfAPublisher(t *testing.T) {
	r := newScene(t)
	r.push(due("a"))
	key := r.partition.Key(script.Publishers, "")
	require.NoError(t, r.Client.HSet(t.Context(), key, "other", "1 1 x", "p/1", "1 1 x").Err())
	require.NoError(t, r.partition.Unrecord(t.Context(), []string{"p", "p/1", "unknown"}))
	fields, err := r.Client.HKeys(t.Context(), key).Result()
	require.NoError(t, err)
	assert.Equal(t, []string{"other"}, fields)
}
