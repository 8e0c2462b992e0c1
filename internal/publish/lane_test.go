package publish

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

func TestCallsDuringABatchAreSentTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{latency: time.Millisecond}
		p := f.publisher(t)
		var calls sync.WaitGroup
		calls.Go(func() { assert.NoError(t, p.Publish(t.Context(), far, "t", one("first"))) })
		synctest.Wait() // it is on its way
		for i := range 49 {
			calls.Go(func() { assert.NoError(t, p.Publish(t.Context(), far, "t", one(fmt.Sprint(i)))) })
		}
		calls.Wait()
		require.NoError(t, p.Close(t.Context()))
		assert.Equal(t, []int64{1, 2}, f.numbers(), "the first call goes out alone, the rest together after it")
		assert.Len(t, f.batches[1].Calls, 49)
	})
}

func TestBatchesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{latency: time.Millisecond}
		p := f.publisher(t)
		var calls sync.WaitGroup
		large := make([]byte, maxBytes/2+1)
		for range 5 {
			calls.Go(func() { assert.NoError(t, p.Publish(t.Context(), far, "t", make([]Message, 200))) })
			calls.Go(func() { assert.NoError(t, p.Publish(t.Context(), far, "t", []Message{{Body: large}})) })
		}
		calls.Wait()
		require.NoError(t, p.Close(t.Context()))
		for _, batch := range f.batches {
			messages, bytes := 0, 0
			for _, call := range batch.Calls {
				messages += len(call)
				for _, m := range call {
					bytes += len(m.Body)
				}
			}
			assert.LessOrEqual(t, messages, maxMessages)
			assert.LessOrEqual(t, bytes, maxBytes)
		}
	})
}

func TestAFailedCallIsRetriedWithNewNumbersUntilStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{answers: []error{io.EOF, &net.OpError{Op: "dial"}, loadingError(), loadingError()}}
		p := f.publisher(t)
		require.NoError(t, p.Publish(t.Context(), far, "t", one("a")))
		require.NoError(t, p.Publish(t.Context(), far, "t", one("b")))
		assert.Equal(t, []int64{1, 2, 3, 4, 5, 6}, f.numbers())
		assert.Equal(t, []string{"a", "b"}, f.names[0])
	})
}

func TestPublishReportsWhetherTheOutcomeIsKnown(t *testing.T) {
	full := script.NotStoredError("OOM command not allowed when used memory > 'maxmemory'.")
	denied := redisError("NOPERM this user has no permissions to run the 'evalsha' command")
	stale := fmt.Errorf("%w: %w", queue.ErrStalePublisher, script.NotStoredError("STALE batch 1 was another one"))
	older := fmt.Errorf("%w: %w", queue.ErrStalePublisher, redisError("STALE batch 1 comes after batch 2"))
	tests := map[string]struct {
		answers, outcomes []error
		want              error
		unknown           bool
	}{
		"refused by Redis":                     {[]error{full}, nil, full, false},
		"refused after a cut connection":       {[]error{io.EOF, full}, nil, full, false},
		"not permitted":                        {[]error{denied}, []error{denied}, denied, true}, // perhaps the client's second attempt
		"not permitted, and not stored":        {[]error{denied}, nil, denied, false},
		"cut repeatedly":                       {[]error{io.EOF, io.EOF, io.EOF}, nil, io.EOF, false},
		"another batch under its number":       {[]error{stale}, nil, queue.ErrStalePublisher, false},
		"a number that decreased":              {[]error{older}, nil, queue.ErrStalePublisher, true},
		"a later batch":                        {[]error{io.EOF}, []error{queue.ErrStalePublisher}, queue.ErrStalePublisher, true},
		"client closed after a reply was lost": {[]error{io.EOF}, []error{redis.ErrClosed}, redis.ErrClosed, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeTopic{answers: test.answers, outcomes: test.outcomes}
				p := f.publisher(t)
				err := p.Publish(t.Context(), far, "t", one("a"))
				require.ErrorIs(t, err, test.want)
				assert.Equal(t, test.unknown, errors.Is(err, ErrOutcomeUnknown))
			})
		})
	}
}

func TestAStalePublisherTakesANewName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{answers: []error{queue.ErrStalePublisher, nil, io.EOF, queue.ErrStalePublisher}}
		p := f.publisher(t)
		for _, fails := range []bool{true, false, true, false} {
			assert.Equal(t, fails, p.Publish(t.Context(), far, "t", one("a")) != nil)
		}
		require.NoError(t, p.Close(t.Context()))
		var names []string
		for _, batch := range f.batches {
			names = append(names, batch.Publisher)
		}
		assert.Equal(t, []int{0, 1, 1, 1, 2}, distinct(names))
		assert.Equal(t, []int64{1, 2, 3, 4, 5}, f.numbers())
	})
}

func TestACancelledCallReportsWhetherItWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{latency: time.Second}
		p := f.publisher(t)
		short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		var calls sync.WaitGroup
		calls.Go(func() {
			err := p.Publish(short, far, "t", one("sent"))
			assert.ErrorIs(t, err, ErrOutcomeUnknown)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
		synctest.Wait()
		calls.Go(func() {
			shorter, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			defer cancel()
			err := p.Publish(shorter, far, "t", one("waiting"))
			assert.NotErrorIs(t, err, ErrOutcomeUnknown)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
		calls.Wait()
		require.NoError(t, p.Close(t.Context()))
		assert.Empty(t, f.batches, "both callers have left")
	})
}

func TestACancelledCallDoesNotEndItsBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{latency: time.Second}
		p := f.publisher(t)
		short, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		var calls sync.WaitGroup
		calls.Go(func() { assert.NoError(t, p.Publish(t.Context(), far, "t", one("first"))) })
		synctest.Wait()
		calls.Go(func() { assert.ErrorIs(t, p.Publish(short, far, "t", one("leaves")), ErrOutcomeUnknown) })
		calls.Go(func() { assert.NoError(t, p.Publish(t.Context(), far, "t", one("stays"))) })
		calls.Wait()
		require.NoError(t, p.Close(t.Context()))
		assert.Len(t, f.batches, 2)
	})
}

func TestEachCallEndsAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{latency: time.Minute}
		p := f.publisher(t)
		require.ErrorIs(t, p.Publish(t.Context(), time.Now(), "t", one("too late")), context.DeadlineExceeded)
		assert.Empty(t, p.lanes.open, "nothing is sent")
		var calls sync.WaitGroup
		publish := func(id string, in time.Duration) {
			start := time.Now()
			calls.Go(func() {
				assert.ErrorIs(t, p.Publish(t.Context(), start.Add(in), "t", one(id)), context.DeadlineExceeded)
				assert.Equal(t, in, time.Since(start), id)
			})
			synctest.Wait()
		}
		publish("sent", 10*time.Second)
		publish("waits", 5*time.Second)
		publish("waits for a moment", patience/2)
		publish("waits a little longer than that", 2*patience)
		time.AfterFunc(time.Second, func() { publish("joins a batch that has waited", 3*time.Second) })
		calls.Wait()
	})
}

func TestOnlyTheRejectedCallOfABatchFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{latency: time.Millisecond, duplicates: []string{"1"}}
		p := f.publisher(t)
		var calls sync.WaitGroup
		calls.Go(func() { assert.NoError(t, p.Publish(t.Context(), far, "t", one("alone"))) })
		synctest.Wait()
		errs := make([]error, 3)
		for i := range errs {
			calls.Go(func() { errs[i] = p.Publish(t.Context(), far, "t", one(fmt.Sprint(i))) })
		}
		calls.Wait()
		require.NoError(t, p.Close(t.Context()))
		assert.Len(t, f.batches, 2)
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], ErrDuplicate)
		require.NoError(t, errs[2])
	})
}

func TestAttemptsBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{answers: []error{io.EOF}}
		for range 1000 {
			f.outcomes = append(f.outcomes, io.EOF)
		}
		p := f.publisher(t)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.ErrorIs(t, p.Publish(ctx, far, "t", one("a")), io.EOF)
		require.NoError(t, p.Close(t.Context()))
		attempts := 1000 - len(f.outcomes)
		assert.Less(t, attempts, 20)
		assert.Greater(t, attempts, 8)
		assert.Len(t, f.batches, 1, "no message is sent while Redis does not answer")
	})
}

func TestCloseWaitsForCallsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{latency: time.Second}
		p := f.publisher(t)
		var calls sync.WaitGroup
		calls.Go(func() { assert.NoError(t, p.Publish(t.Context(), far, "t", make([]Message, 2*maxMessages+1))) })
		synctest.Wait()
		require.NoError(t, p.Close(t.Context()))
		assert.Len(t, f.batches, 3)
		assert.ErrorIs(t, p.Publish(t.Context(), far, "t", one("b")), ErrClosed)
		calls.Wait()
	})
}

func TestAnIdleSenderGoroutineEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := (&fakeTopic{latency: time.Millisecond}).publisher(t)
		require.NoError(t, p.Publish(t.Context(), far, "t", one("a")))
		time.Sleep(2 * linger) //nolint:forbidigo // in virtual time
		p.lanes.mu.Lock()
		assert.False(t, p.lanes.open[destination{topic: "t"}].runs)
		p.lanes.mu.Unlock()
		require.NoError(t, p.Publish(t.Context(), far, "t", one("b")))
	})
}
