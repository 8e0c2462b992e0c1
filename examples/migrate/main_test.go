package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redisdelay/watermill-redisdelay/examples/internal/redisserver"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// The reader of redisstream sleeps after an error, and its Close does not wait for that. A router that could not begin goes on
// waiting for its handlers.
func TestMain(m *testing.M) {
	redistest.Main(m, goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream.(*Subscriber).read"),
		goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill/message.(*Router).watchAllHandlersStopped.func1"),
		goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill/message.(*Router).watchAllHandlersStopped"))
}

func TestEachOrderIsBilledOnceDuringTheMigration(t *testing.T) {
	t.Setenv("REDIS_ADDR", redistest.New(t).Addr)
	require.NoError(t, run(t.Context()))
}

// TestRunFailsIfItCannotSubscribe: the user may not use streams.
func TestRunFailsIfItCannotSubscribe(t *testing.T) {
	server := redistest.New(t)
	require.NoError(t, server.Client(t).Do(t.Context(), "ACL", "SETUSER", "default", "-xgroup").Err())
	t.Setenv("REDIS_ADDR", server.Addr)
	require.ErrorContains(t, run(t.Context()), "NOPERM")
}

// TestTheStreamHandlerStopsWhenAllEntriesAreHandled, not before.
func TestTheStreamHandlerStopsWhenAllEntriesAreHandled(t *testing.T) {
	t.Setenv("REDIS_ADDR", redistest.New(t).Addr)
	server, err := redisserver.Start(t.Context())
	require.NoError(t, err)
	defer server.Stop()
	s, err := newService(server, nil)
	require.NoError(t, err)
	running := make(chan error, 1)
	go func() { running <- s.router.Run(context.Background()) }() // ends with close
	<-s.router.Running()
	s.mu.Lock() // the handler waits for it
	s.due["a"], s.done = time.Now(), make(chan struct{})
	require.NoError(t, s.stream.Publish(s.name, message.NewMessage("a", nil)))
	drained := make(chan error, 1)
	go func() { drained <- s.drainStream(context.Background()) }() // ends when the handler does
	select {
	case err := <-drained:
		require.Fail(t, "it has stopped before", "%v", err)
	case <-time.After(300 * time.Millisecond):
	}
	s.mu.Unlock()
	require.NoError(t, <-drained)
	<-s.oldHandler.Stopped()
	require.NoError(t, s.wait(t.Context()))
	require.NoError(t, errors.Join(s.close(), <-running))
}

// TestAStreamIsDrainedWhenAllEntriesAreAcked, not when all are read.
func TestAStreamIsDrainedWhenAllEntriesAreAcked(t *testing.T) {
	ctx, client := context.Background(), redistest.Client(t)
	stream := "a stream to drain " + watermill.NewShortUUID()
	_, err := drained(ctx, client, stream, group)
	require.Error(t, err, "there is no stream")
	require.NoError(t, client.XGroupCreateMkStream(ctx, stream, group, "0").Err())
	is := func(want bool) {
		t.Helper()
		got, err := drained(ctx, client, stream, group)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	is(true)
	id := client.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: []string{"a", "b"}}).Val()
	is(false)
	require.NoError(t, client.XReadGroup(ctx, &redis.XReadGroupArgs{Group: group, Consumer: "c", Streams: []string{stream, ">"}}).Err())
	is(false)
	require.NoError(t, client.XAck(ctx, stream, group, id).Err())
	is(true)
	_, err = drained(ctx, client, stream, "another group")
	require.Error(t, err)
}
