package publish

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/outage"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// opened returns topics that count how many are opened.
func opened(count *int) *topics {
	open := func(string) Topic {
		*count++
		return &fakeTopic{}
	}
	return newTopics(Config{Open: open, Partitions: 1}, newBackground(), outage.New(observe.Observer{}, 0))
}

func TestThePublisherRemembersABoundedNumberOfTopics(t *testing.T) {
	count := 0
	topics := opened(&count)
	busy := topics.find("busy")
	for n := range 100_000 {
		topics.find(fmt.Sprint(n))
		if n%1000 == 0 {
			require.Same(t, busy, topics.find("busy"), "a topic in use is not forgotten")
		}
		require.LessOrEqual(t, len(topics.young), maxTopics)
		require.LessOrEqual(t, len(topics.old), maxTopics)
	}
	assert.Equal(t, 100_001, count)
	for n := 99_999; n >= 100_000-maxTopics; n-- {
		topics.find(fmt.Sprint(n))
	}
	assert.Equal(t, 100_001, count, "recent topics are remembered")
}

// topicsOf returns topics that are all one fake, and counts the reported failures.
func topicsOf(t *testing.T, f *fakeTopic) (topics *topics, reported *atomic.Int64) {
	t.Helper()
	reported = &atomic.Int64{}
	b := newBackground()
	t.Cleanup(func() { assert.NoError(t, b.close(context.Background())) })
	o := outage.New(observe.Observer{Failed: func(observe.Failed) { reported.Add(1) }}, 0)
	return newTopics(Config{Open: func(string) Topic { return f }, Partitions: 1}, b, o), reported
}

func TestATopicQueryIsSharedAndOutlivesItsCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{partitions: 3, raise: func(context.Context) error {
			<-time.After(time.Second)
			return nil
		}}
		topics, _ := topicsOf(t, f)
		var callers sync.WaitGroup
		for n := range 10 {
			callers.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n+1)*150*time.Millisecond)
				defer cancel()
				start := time.Now()
				partitions, err := topics.partitions(ctx, far, "t")
				if n < 6 {
					assert.ErrorIs(t, err, context.DeadlineExceeded)
					assert.ErrorIs(t, err, errSilent)
					assert.Equal(t, time.Duration(n+1)*150*time.Millisecond, time.Since(start))
				} else {
					assert.NoError(t, err)
					assert.Equal(t, 3, partitions)
				}
			})
		}
		callers.Wait()
		assert.Equal(t, 1, f.asked)
	})
}

func TestTheKnownPartitionCountIsUsedWhileRedisIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		f := &fakeTopic{partitions: 3, raise: func(context.Context) error {
			if down.Load() {
				return io.EOF
			}
			return nil
		}}
		topics, reported := topicsOf(t, f)
		partitions := func() int {
			n, err := topics.partitions(t.Context(), far, "t")
			require.NoError(t, err)
			return n
		}
		require.Equal(t, 3, partitions())
		down.Store(true)
		for range 10 {
			<-time.After(queryEvery + time.Second)
			for range 5 {
				require.Equal(t, 3, partitions())
			}
		}
		synctest.Wait()
		assert.Equal(t, 11, f.asked, "it still looks now and then")
		assert.Zero(t, reported.Load(), "harmless failures are not reported")
	})
}

func TestTheKnownPartitionCountIsUsedWhileAQueryHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hung chan struct{}
		f := &fakeTopic{partitions: 3, raise: func(context.Context) error {
			if hung != nil {
				<-hung // like a client that does not look at its context
			}
			return nil
		}}
		topics, _ := topicsOf(t, f)
		partitions := func() {
			t.Helper()
			start := time.Now()
			n, err := topics.partitions(t.Context(), start.Add(time.Second), "t")
			require.NoError(t, err)
			assert.Equal(t, 3, n)
			assert.Zero(t, time.Since(start))
		}
		_, err := topics.partitions(t.Context(), far, "t")
		require.NoError(t, err)
		hung = make(chan struct{})
		<-time.After(queryEvery + time.Second)
		partitions()
		<-time.After(time.Minute)
		partitions()
		synctest.Wait()
		assert.Equal(t, 2, f.asked, "one look at a time")
		close(hung)
		synctest.Wait()
	})
}

func TestAKnownPartitionCountIsRefreshedOnceASlotIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{partitions: 3}
		topics, _ := topicsOf(t, f)
		partitions := func() {
			t.Helper()
			n, err := topics.partitions(t.Context(), time.Now().Add(time.Second), "t")
			require.NoError(t, err)
			assert.Equal(t, 3, n)
			synctest.Wait()
		}
		partitions()
		release := make(chan struct{})
		for range maxBackground { // looks for new topics, say
			require.NoError(t, topics.background.start(t.Context(), func(context.Context) { <-release }))
		}
		<-time.After(queryEvery)
		start := time.Now()
		partitions()
		partitions()
		assert.Zero(t, time.Since(start))
		assert.Equal(t, 1, f.asked)
		close(release)
		synctest.Wait()
		partitions()
		assert.Equal(t, 2, f.asked)
	})
}

// TestBackgroundRefreshesLeaveSlotsForOtherCalls, however many topics are on a master that hangs.
func TestBackgroundRefreshesLeaveSlotsForOtherCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		hanging := false
		f := &fakeTopic{partitions: 1, raise: func(context.Context) error {
			if hanging {
				<-hang
			}
			return nil
		}}
		topics, _ := topicsOf(t, f)
		for _, again := range []bool{false, true} {
			hanging = again
			for i := range maxBackground {
				_, err := topics.partitions(t.Context(), time.Now().Add(time.Second), fmt.Sprint(i))
				require.NoError(t, err)
			}
			synctest.Wait()
			<-time.After(queryEvery)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, topics.background.start(ctx, func(context.Context) {}))
		close(hang)
	})
}

func TestACallerThatGivesUpDoesNotFailTheQueryOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topics, reported := topicsOf(t, &fakeTopic{partitions: 3})
		release := make(chan struct{})
		for range maxBackground {
			require.NoError(t, topics.background.start(t.Context(), func(context.Context) { <-release }))
		}
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var calls sync.WaitGroup
		calls.Go(func() {
			_, err := topics.partitions(impatient, far, "t")
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
		synctest.Wait()
		calls.Go(func() {
			n, err := topics.partitions(t.Context(), far, "t")
			assert.NoError(t, err)
			assert.Equal(t, 3, n)
		})
		<-time.After(2 * time.Second)
		close(release)
		calls.Wait()
		assert.Zero(t, reported.Load(), "reported failures")
	})
}

func TestANewTopicIsQueriedUntilTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{raise: func(context.Context) error { return io.EOF }}
		topics, reported := topicsOf(t, f)
		start := time.Now()
		_, err := topics.partitions(t.Context(), start.Add(5*time.Second), "t")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, io.EOF)
		assert.Equal(t, 5*time.Second, time.Since(start))
		assert.Greater(t, f.asked, 5)
		assert.Equal(t, int64(f.asked), reported.Load())

		f.raise = func(context.Context) error { return redisError("NOAUTH Authentication required.") }
		_, err = topics.partitions(t.Context(), far, "u")
		require.ErrorContains(t, err, "NOAUTH")
	})
}

func TestATopicIsEnlistedBeforeAnythingIsWritten(t *testing.T) {
	f := &fakeTopic{enlist: func() error { return redisError("ERR unknown command") }}
	p := f.publisher(t)
	require.ErrorContains(t, p.Publish(t.Context(), far, "t", one("a")), "not stored: ERR unknown command")
	assert.Zero(t, f.asked)
	assert.Empty(t, f.batches)
	f.enlist = nil
	require.NoError(t, p.Publish(t.Context(), far, "t", one("a")))
}

func TestPublishToANewTopicEndsWithClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{raise: func(context.Context) error { return io.EOF }}
		p := f.publisher(t)
		published := make(chan error, 1)
		go func() { published <- p.Publish(t.Context(), far, "t", one("a")) }()
		<-time.After(time.Second)
		require.NoError(t, p.Close(t.Context()))
		err := <-published
		require.ErrorIs(t, err, ErrClosed)
		assert.NotErrorIs(t, err, ErrOutcomeUnknown)
	})
}

func TestCloseDuringTheFirstTopicQueryReportsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{raise: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		f.observer.Failed = func(e observe.Failed) { t.Errorf("failed: %v", e.Err) }
		p := f.publisher(t)
		published := make(chan error, 1)
		go func() { published <- p.Publish(t.Context(), far, "t", one("a")) }()
		synctest.Wait()
		require.NoError(t, p.Close(t.Context()))
		require.ErrorIs(t, <-published, ErrClosed)
	})
}

func TestBackgroundCallsAreBoundedAndEndWithClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackground()
		release := make(chan struct{})
		for range maxBackground {
			require.NoError(t, b.start(t.Context(), func(context.Context) { <-release }))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, b.start(ctx, func(context.Context) {}), context.DeadlineExceeded)
		require.ErrorIs(t, b.close(ctx), context.DeadlineExceeded)
		close(release)
		require.NoError(t, b.close(t.Context()))
		require.ErrorIs(t, b.start(t.Context(), func(context.Context) {}), ErrClosed)
	})
}

// TestAPublisherEndsExpiredGroups while it publishes, and no Publish call waits.
func TestAPublisherEndsExpiredGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var events []any
		note := func(e any) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, e)
		}
		f := &fakeTopic{endTakes: time.Second, ended: []queue.Ended{{Group: "old", Freed: 3}}, endFails: loadingError(), observer: observe.Observer{
			GroupExpired: func(e observe.GroupExpired) { note(e) }, OutageBegan: func(e observe.OutageBegan) { note(e) }, OutageEnded: func(e observe.OutageEnded) { note(e) },
		}}
		p := f.publisher(t)
		start := time.Now()
		require.NoError(t, p.Publish(t.Context(), far, "t", one("a")))
		assert.Zero(t, time.Since(start))
		time.Sleep(queryEvery + 2*time.Second) //nolint:forbidigo // lets the bubble's clock run
		f.mu.Lock()
		f.ended, f.endFails = nil, nil
		f.mu.Unlock()
		require.NoError(t, p.Publish(t.Context(), far, "t", one("b")))
		time.Sleep(2 * time.Second) //nolint:forbidigo // lets the bubble's clock run
		require.NoError(t, p.Close(context.Background()))
		place := observe.Place{Topic: "t", Partition: wholeTopic}
		ended := place
		ended.Group = "old"
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, events, 3)
		assert.Equal(t, []any{
			observe.GroupExpired{Place: ended, Freed: 3},
			observe.OutageBegan{Place: place, Activity: observe.ExpiringGroups, Err: loadingError()},
		}, slices.Clone(events[:2]))
		recovered, _ := events[2].(observe.OutageEnded)
		assert.Equal(t, observe.ExpiringGroups, recovered.Activity)
		assert.Positive(t, recovered.After)
	})
}
