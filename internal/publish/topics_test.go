package publish

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// opened counts the topics that Topics had to open.
func opened(count *int) *Topics {
	return NewTopics(func(string) *queue.Topic {
		*count++
		return nil
	}, 1, NewCalls(), quietly())
}

func TestAHundredThousandTopicsAreBounded(t *testing.T) {
	count := 0
	topics := opened(&count)
	busy := topics.find("busy")
	for n := range 100_000 {
		topics.find(fmt.Sprint(n))
		if n%1000 == 0 {
			require.Same(t, busy, topics.find("busy"), "what is in use is not forgotten")
		}
		require.LessOrEqual(t, len(topics.young), maxTopics)
		require.LessOrEqual(t, len(topics.old), maxTopics)
	}
	assert.Equal(t, 100_001, count)
	for n := 99_999; n >= 100_000-maxTopics; n-- {
		topics.find(fmt.Sprint(n))
	}
	assert.Equal(t, 100_001, count, "the last ones are remembered")
}

// BenchmarkNewTopics shows what a new topic costs among so many others.
func BenchmarkNewTopics(b *testing.B) {
	for _, known := range []int{100, 1000, 16_000, 100_000} {
		b.Run(fmt.Sprint(known), func(b *testing.B) {
			store, err := queue.NewStore(&scripted{}, "p", observe.Observer{})
			require.NoError(b, err)
			topics := NewTopics(store.Topic, 1, NewCalls(), quietly())
			for n := range known {
				topics.find(fmt.Sprint(n))
			}
			name := strings.Repeat("x", 20)
			for b.Loop() {
				known++
				topics.find(name + fmt.Sprint(known))
			}
		})
	}
}

// scripted is a Redis whose answers to the script that counts partitions are scripted.
type scripted struct {
	redis.UniversalClient
	answer func(ctx context.Context) error
	asked  atomic.Int64
	listed atomic.Int64
}

func (s *scripted) Options() *redis.Options { return &redis.Options{} }

func (s *scripted) PoolStats() *redis.PoolStats { return &redis.PoolStats{TotalConns: 1} }

func (s *scripted) Info(ctx context.Context, _ ...string) *redis.StringCmd {
	cmd := redis.NewStringCmd(ctx)
	cmd.SetVal("redis_version:7.0.0\r\n")
	return cmd
}

func (s *scripted) EvalSha(ctx context.Context, _ string, keys []string, _ ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	if keys[0] == "{p:topics}" {
		s.listed.Add(1)
		cmd.SetVal([]any{queue.Version})
		return cmd
	}
	s.asked.Add(1)
	if err := s.answer(ctx); err != nil {
		cmd.SetErr(err)
		return cmd
	}
	cmd.SetVal([]any{int64(3)})
	return cmd
}

// outages counts how an Outage was told of.
type outages struct{ began, ended atomic.Int64 }

func (o *outages) outage() *Outage {
	return NewOutage(func(Destination, error) { o.began.Add(1) }, func(time.Duration) { o.ended.Add(1) })
}

func scriptedTopics(t *testing.T, answer func(ctx context.Context) error) (*Topics, *scripted, *outages) {
	t.Helper()
	redis, seen := &scripted{answer: answer}, &outages{}
	store, err := queue.NewStore(redis, "p", observe.Observer{})
	require.NoError(t, err)
	calls := NewCalls()
	t.Cleanup(func() { assert.NoError(t, calls.Close(context.Background())) })
	return NewTopics(store.Topic, 1, calls, seen.outage()), redis, seen
}

func TestALookIsSharedAndOutlivesItsCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topics, redis, _ := scriptedTopics(t, func(context.Context) error {
			time.Sleep(time.Second) //nolint:forbidigo // in a bubble
			return nil
		})
		var callers sync.WaitGroup
		for n := range 10 {
			callers.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n+1)*150*time.Millisecond)
				defer cancel()
				start := time.Now()
				partitions, err := topics.Partitions(ctx, far, "t")
				if n < 6 {
					assert.ErrorIs(t, err, context.DeadlineExceeded)
					assert.ErrorContains(t, err, "no answer from Redis")
					assert.Equal(t, time.Duration(n+1)*150*time.Millisecond, time.Since(start))
				} else {
					assert.NoError(t, err)
					assert.Equal(t, 3, partitions)
				}
			})
		}
		callers.Wait()
		assert.Equal(t, int64(1), redis.asked.Load())
	})
}

func TestAKnownNumberServesWhileRedisIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		topics, redis, seen := scriptedTopics(t, func(context.Context) error {
			if down.Load() {
				return io.EOF
			}
			return nil
		})
		partitions := func() int {
			n, err := topics.Partitions(t.Context(), far, "t")
			require.NoError(t, err)
			return n
		}
		require.Equal(t, 3, partitions())
		down.Store(true)
		for range 10 {
			<-time.After(lookEvery + time.Second)
			for range 5 {
				require.Equal(t, 3, partitions())
			}
		}
		assert.Equal(t, int64(11), redis.asked.Load(), "it looks every now and then")
		assert.Equal(t, int64(1), redis.listed.Load(), "a topic is put on the list once")
		assert.Zero(t, seen.began.Load(), "what does no harm is not told")
	})
}

func TestLookingForANewTopicTriesUntilTheDeadlineAndNamesTheLastError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topics, redis, seen := scriptedTopics(t, func(context.Context) error { return io.EOF })
		start := time.Now()
		_, err := topics.Partitions(t.Context(), start.Add(5*time.Second), "t")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, io.EOF)
		assert.Equal(t, 5*time.Second, time.Since(start))
		assert.Greater(t, redis.asked.Load(), int64(5))
		assert.Equal(t, int64(1), seen.began.Load())

		redis.answer = func(context.Context) error { return answerOf("NOAUTH Authentication required.") }
		_, err = topics.Partitions(t.Context(), far, "u")
		require.ErrorContains(t, err, "NOAUTH")
	})
}

func answerOf(text string) error { return redisError(text) }

func TestCallsAreBoundedAndEndWithClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := NewCalls()
		release := make(chan struct{})
		for range maxCalls {
			require.NoError(t, calls.Go(t.Context(), func(context.Context) { <-release }))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, calls.Go(ctx, func(context.Context) {}), context.DeadlineExceeded)
		require.ErrorIs(t, calls.Do(ctx, func(context.Context) error { return nil }), context.DeadlineExceeded)
		require.ErrorIs(t, calls.Close(ctx), context.DeadlineExceeded)
		close(release)
		require.NoError(t, calls.Close(t.Context()))
		require.ErrorIs(t, calls.Do(t.Context(), func(context.Context) error { return nil }), ErrClosed)
	})
}

func TestAnOutageIsToldOnceAndSoIsItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &outages{}
		o := seen.outage()
		a, b, gone := Destination{Topic: "a"}, Destination{Topic: "b"}, Destination{Topic: "gone"}
		told := func() [2]int64 { return [2]int64{seen.began.Load(), seen.ended.Load()} }
		o.Worked(a)
		assert.Equal(t, [2]int64{0, 0}, told())
		for range 5 {
			o.Failed(a, io.EOF)
			o.Failed(b, io.EOF)
		}
		o.Worked(a)
		assert.Equal(t, [2]int64{1, 0}, told(), "b still fails")
		o.Failed(a, io.EOF)
		o.Worked(b)
		o.Worked(a)
		assert.Equal(t, [2]int64{1, 1}, told())
		o.Failed(gone, io.EOF)
		o.Worked(a)
		assert.Equal(t, [2]int64{2, 1}, told())
		<-time.After(staleAfter + time.Second)
		o.Worked(a)
		assert.Equal(t, [2]int64{2, 2}, told(), "nobody publishes to what failed any more")
		for n := range 2 * maxFailing {
			o.Failed(Destination{Topic: fmt.Sprint(n)}, errors.New("x"))
		}
		assert.Len(t, o.last, maxFailing)
	})
}
