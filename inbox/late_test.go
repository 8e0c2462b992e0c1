package inbox

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/intake"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// TestAReaderThatComesLateStoresNothing has a process stop with a batch in its hands while another stores it and goes on: also
// when the messages have been handled meanwhile.
func TestAReaderThatComesLateStoresNothing(t *testing.T) {
	t.Parallel()
	client := redistest.Client(t)
	i, err := New(Config{Client: client, Prefix: "test-" + watermill.NewShortUUID()}, nil)
	require.NoError(t, err)
	tag := "{" + i.config.Prefix
	add := func() {
		require.NoError(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: tag + ":inbox}:entries", Values: []string{"topic", "t"}}).Err())
	}
	next := func(who string, ended int64) intake.Batch {
		b, err := i.intake.Next(t.Context(), intake.Reader{Name: who, Lease: time.Millisecond, Keep: 1, MaxBytes: 1 << 20}, ended)
		require.NoError(t, err)
		return b
	}
	add()
	late := next("late", 0)
	require.Len(t, late.Entries, 1)
	var same intake.Batch
	require.Eventually(t, func() bool {
		same = next("other", 0)
		return len(same.Entries) == 1
	}, 5*time.Second, time.Millisecond)
	settle := func(b intake.Batch) error {
		_, err := i.settle(context.Background(), b)
		return err
	}
	require.NoError(t, settle(same))
	stored := func() int64 { return client.ZCard(t.Context(), tag+":t:0}:scheduled").Val() }
	require.EqualValues(t, 1, stored())
	require.NoError(t, client.Del(t.Context(), tag+":t:0}:scheduled", tag+":t:0}:messages").Err()) // as if it was acked

	require.NoError(t, settle(late), "the batch is the last one: the record says that it is stored")
	assert.Zero(t, stored())
	add()
	require.NoError(t, settle(next("other", same.Number)))
	require.ErrorIs(t, settle(late), intake.ErrEnded)
	pushing := &settling{Inbox: i, batch: late} // it has asked for the plan before
	pushing.add(plan{}, place{topic: "t"}, outcome{entry: late.Entries[0], message: queue.Message{ID: idOf(i.config.Prefix, late.Entries[0], script.Traits{})}})
	require.ErrorIs(t, pushing.push(t.Context()), intake.ErrEnded)
	assert.EqualValues(t, 1, stored())
}
