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
	"go.uber.org/goleak"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeStore answers each batch with the next of its answers; with none left it
// stores the batch.
type fakeStore struct {
	mu      sync.Mutex
	latency time.Duration
	answers []error
	refuse  []queue.Duplicate
	batches []queue.Batch
	sent    []time.Duration // since start
	start   time.Time
}

func (f *fakeStore) push(ctx context.Context, _ Destination, b queue.Batch) ([]queue.Duplicate, error) {
	if f.latency > 0 {
		select {
		case <-time.After(f.latency):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.batches = append(f.batches, b)
	f.sent = append(f.sent, time.Since(f.start))
	if len(f.answers) == 0 {
		return f.refuse, nil
	}
	err := f.answers[0]
	f.answers = f.answers[1:]
	return nil, err
}

func (f *fakeStore) numbers() []int64 {
	var list []int64
	for _, b := range f.batches {
		list = append(list, b.Number)
	}
	return list
}

func newBatcher(f *fakeStore) *Batcher {
	f.start = time.Now()
	names := 0
	return New(f.push, queue.Batch{Duplicates: queue.RejectDuplicates}, func() string {
		names++
		return fmt.Sprint("p", names)
	}, quietly())
}

// quietly is an Outage that nobody hears of.
func quietly() *Outage { return NewOutage(func(Destination, error) {}, func(time.Duration) {}) }

func one(id string) []queue.Message { return []queue.Message{{ID: id}} }

var to = Destination{Topic: "t"}

func TestCallsThatComeDuringABatchGoOutTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStore{latency: time.Millisecond}
		b := newBatcher(f)
		var calls sync.WaitGroup
		calls.Go(func() { assert.NoError(t, b.Publish(t.Context(), far, to, one("first"))) })
		synctest.Wait() // it is on its way
		for i := range 49 {
			calls.Go(func() { assert.NoError(t, b.Publish(t.Context(), far, to, one(fmt.Sprint(i)))) })
		}
		calls.Wait()
		require.NoError(t, b.Close(t.Context()))
		assert.Equal(t, []int64{1, 2}, f.numbers(), "the first call goes out alone, the rest wait for nothing but it")
		assert.Len(t, f.batches[1].Calls, 49)
	})
}

func TestBatchesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStore{latency: time.Millisecond}
		b := newBatcher(f)
		var calls sync.WaitGroup
		large := make([]byte, MaxBytes/2+1)
		for range 5 {
			calls.Go(func() { assert.NoError(t, b.Publish(t.Context(), far, to, make([]queue.Message, 200))) })
			calls.Go(func() { assert.NoError(t, b.Publish(t.Context(), far, to, []queue.Message{{Body: large}})) })
		}
		calls.Wait()
		require.NoError(t, b.Close(t.Context()))
		for _, batch := range f.batches {
			messages, bytes := 0, 0
			for _, call := range batch.Calls {
				messages += len(call)
				for _, m := range call {
					bytes += len(m.Body)
				}
			}
			assert.LessOrEqual(t, messages, MaxMessages)
			assert.LessOrEqual(t, bytes, MaxBytes)
		}
	})
}

func TestABatchIsSentAgainUnderItsNumberUntilItIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStore{answers: []error{io.EOF, &net.OpError{Op: "dial"}, loadingError()}}
		b := newBatcher(f)
		require.NoError(t, b.Publish(t.Context(), far, to, one("a")))
		require.NoError(t, b.Publish(t.Context(), far, to, one("b")))
		assert.Equal(t, []int64{1, 1, 1, 1, 2}, f.numbers())
		require.NoError(t, b.Close(t.Context()))
	})
}

// loadingError is what Redis says while it loads its data.
func loadingError() error { return redisError("LOADING Redis is loading the dataset in memory") }

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

var _ redis.Error = redisError("")

func TestPublishTellsWhetherTheOutcomeIsKnown(t *testing.T) {
	full := queue.Refusal("OOM command not allowed when used memory > 'maxmemory'.")
	denied := redisError("NOPERM this user has no permissions to run the 'evalsha' command")
	stale := fmt.Errorf("%w: %w", queue.ErrStalePublisher, queue.Refusal("STALE batch 1 was another one"))
	older := fmt.Errorf("%w: %w", queue.ErrStalePublisher, redisError("STALE batch 1 comes after batch 2"))
	tests := map[string]struct {
		answers []error
		want    error
		unknown bool
	}{
		"refused by Redis":                     {[]error{full}, full, false},
		"refused after a reply was lost":       {[]error{io.EOF, full}, full, false}, // it knows that the first came to nothing
		"not permitted":                        {[]error{denied}, denied, true},      // perhaps a second attempt of the client's
		"another batch under its number":       {[]error{stale}, queue.ErrStalePublisher, false},
		"a number that went back":              {[]error{older}, queue.ErrStalePublisher, true},
		"client closed after a reply was lost": {[]error{io.EOF, redis.ErrClosed}, redis.ErrClosed, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeStore{answers: test.answers}
				b := newBatcher(f)
				err := b.Publish(t.Context(), far, to, one("a"))
				require.ErrorIs(t, err, test.want)
				assert.Equal(t, test.unknown, errors.Is(err, ErrOutcomeUnknown))
				require.NoError(t, b.Close(t.Context()))
			})
		})
	}
}

func TestAStalePublisherTakesANewName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStore{answers: []error{queue.ErrStalePublisher, nil, io.EOF, queue.ErrStalePublisher}}
		b := newBatcher(f)
		for _, fails := range []bool{true, false, true, false} {
			assert.Equal(t, fails, b.Publish(t.Context(), far, to, one("a")) != nil)
		}
		require.NoError(t, b.Close(t.Context()))
		var names []string
		for _, batch := range f.batches {
			names = append(names, batch.Publisher)
		}
		assert.Equal(t, []string{"p1", "p2", "p2", "p2", "p3"}, names)
		assert.Equal(t, []int64{1, 2, 3, 3, 4}, f.numbers())
	})
}

func TestACallerThatLeavesLearnsWhetherItWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStore{latency: time.Second}
		b := newBatcher(f)
		short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		var calls sync.WaitGroup
		calls.Go(func() {
			err := b.Publish(short, far, to, one("sent"))
			assert.ErrorIs(t, err, ErrOutcomeUnknown)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
		synctest.Wait()
		calls.Go(func() {
			shorter, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			defer cancel()
			err := b.Publish(shorter, far, to, one("waiting"))
			assert.NotErrorIs(t, err, ErrOutcomeUnknown)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
		calls.Wait()
		require.NoError(t, b.Close(t.Context()))
		assert.Empty(t, f.batches, "nobody waits for either any more")
	})
}

func TestACallerThatLeavesDoesNotEndTheBatchOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStore{latency: time.Second}
		b := newBatcher(f)
		short, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		var calls sync.WaitGroup
		calls.Go(func() { assert.NoError(t, b.Publish(t.Context(), far, to, one("first"))) })
		synctest.Wait()
		calls.Go(func() { assert.ErrorIs(t, b.Publish(short, far, to, one("leaves")), ErrOutcomeUnknown) })
		calls.Go(func() { assert.NoError(t, b.Publish(t.Context(), far, to, one("stays"))) })
		calls.Wait()
		require.NoError(t, b.Close(t.Context()))
		assert.Len(t, f.batches, 2)
	})
}

func TestEachCallEndsAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStore{latency: time.Minute}
		b := newBatcher(f)
		require.ErrorIs(t, b.Publish(t.Context(), time.Now(), to, one("too late")), context.DeadlineExceeded)
		assert.Empty(t, b.lanes, "nothing is sent")
		var calls sync.WaitGroup
		publish := func(id string, in time.Duration) {
			start := time.Now()
			calls.Go(func() {
				assert.ErrorIs(t, b.Publish(t.Context(), start.Add(in), to, one(id)), context.DeadlineExceeded)
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
		require.NoError(t, b.Close(t.Context()))
	})
}

func TestOnlyTheRefusedCallOfABatchFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStore{latency: time.Millisecond}
		b := newBatcher(f)
		var calls sync.WaitGroup
		calls.Go(func() { assert.NoError(t, b.Publish(t.Context(), far, to, one("alone"))) })
		synctest.Wait()
		errs := make([]error, 3)
		for i := range errs {
			calls.Go(func() { errs[i] = b.Publish(t.Context(), far, to, one(fmt.Sprint(i))) })
		}
		synctest.Wait()
		time.AfterFunc(1500*time.Microsecond, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.refuse = []queue.Duplicate{{Call: 1}}
		})
		calls.Wait()
		require.NoError(t, b.Close(t.Context()))
		refused := f.batches[1].Calls[1][0].ID
		for i, err := range errs {
			if fmt.Sprint(i) == refused {
				assert.ErrorIs(t, err, ErrDuplicate)
			} else {
				assert.NoError(t, err)
			}
		}
	})
}

func TestAttemptsBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStore{}
		for range 1000 {
			f.answers = append(f.answers, io.EOF)
		}
		b := newBatcher(f)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.ErrorIs(t, b.Publish(ctx, far, to, one("a")), io.EOF)
		require.NoError(t, b.Close(t.Context()))
		assert.Less(t, len(f.batches), 20)
		assert.Greater(t, len(f.batches), 8)
	})
}

func TestCloseWaitsForCallsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStore{latency: time.Second}
		b := newBatcher(f)
		var calls sync.WaitGroup
		calls.Go(func() { assert.NoError(t, b.Publish(t.Context(), far, to, one("a"))) })
		synctest.Wait()
		require.NoError(t, b.Close(t.Context()))
		assert.Len(t, f.batches, 1)
		assert.ErrorIs(t, b.Publish(t.Context(), far, to, one("b")), ErrClosed)
		calls.Wait()
	})
}

func TestSplitKeepsOrderAndBounds(t *testing.T) {
	var messages []queue.Message
	for i := range 2 * MaxMessages {
		messages = append(messages, queue.Message{ID: fmt.Sprint(i)})
	}
	large := make([]byte, MaxBytes*2/3)
	messages = append(messages, queue.Message{ID: "large", Body: large}, queue.Message{ID: "larger", Body: large})
	var joined []queue.Message
	var sizes []int
	for _, part := range Split(messages) {
		sizes = append(sizes, len(part))
		joined = append(joined, part...)
	}
	assert.Equal(t, []int{MaxMessages, MaxMessages, 1, 1}, sizes)
	assert.Equal(t, messages, joined)
	assert.Empty(t, Split(nil))
}
