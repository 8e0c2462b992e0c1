package publish

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// async begins to publish messages, of one second from now.
func (p *Publisher) async(ctx context.Context, messages ...Message) *Future {
	return p.PublishAsync(ctx, func() {}, time.Now().Add(time.Second), "t", messages)
}

// outcomeOf waits for the outcome of a call.
func outcomeOf(f *Future) error {
	<-f.Done()
	return f.Err()
}

// unevenTopic takes longer for some batches than for others, and counts how many are under way.
type unevenTopic struct {
	fakeTopic
	mu        sync.Mutex
	now, most int // guarded by mu
}

func (u *unevenTopic) Push(ctx context.Context, partition int, b queue.Batch) ([]queue.Duplicate, error) {
	u.count(1)
	defer u.count(-1)
	<-time.After(time.Duration((b.Number+1)%4) * u.latency)
	return u.fakeTopic.Push(ctx, partition, b)
}

func (u *unevenTopic) count(by int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.now += by
	u.most = max(u.most, u.now)
}

// inOrder checks that the messages of each caller, "caller/number", are stored in their order.
func inOrder(t *testing.T, names []string) {
	t.Helper()
	next := map[int]int{}
	for _, name := range names {
		var caller, number int
		_, err := fmt.Sscanf(name, "%d/%d", &caller, &number)
		require.NoError(t, err)
		require.Equal(t, next[caller], number, "the next of caller %d", caller)
		next[caller]++
	}
}

// TestAsyncCallsOfOneGoroutineStayInOrder near and far, among calls that wait, and through failed
// attempts. Every third call of a caller is a Publish call.
func TestAsyncCallsOfOneGoroutineStayInOrder(t *testing.T) {
	for _, latency := range []time.Duration{100 * time.Microsecond, time.Millisecond} {
		for _, answers := range [][]error{nil, {nil, io.EOF, loadingError(), nil, nil, io.EOF, nil, nil, nil, io.EOF}} {
			t.Run(fmt.Sprint(latency, len(answers)), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := &unevenTopic{fakeTopic: fakeTopic{latency: latency, answers: answers}}
					p := closed(t, New(Config{Open: func(string) Topic { return f }, Partitions: 1}))
					var all sync.WaitGroup
					for c := range 10 {
						all.Go(func() {
							for i := range 60 {
								m := Message{Name: fmt.Sprintf("%d/%d", c, i)}
								if c < 5 || i%3 == 0 {
									assert.NoError(t, p.Publish(t.Context(), far, "t", []Message{m}))
								} else {
									p.PublishAsync(t.Context(), func() {}, far, "t", []Message{m})
								}
								time.Sleep(time.Duration(c) * 37 * time.Microsecond) //nolint:forbidigo // in virtual time
							}
						})
					}
					all.Wait()
					require.NoError(t, p.Flush(t.Context()))
					require.NoError(t, p.Close(t.Context()))
					require.Len(t, f.names[0], 600, "each message is stored once")
					inOrder(t, f.names[0])
					assert.Equal(t, 1, f.most, "batches under way")
				})
			})
		}
	}
}

func TestPendingMessagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{latency: 300 * time.Millisecond}
		p := f.limited(t, 10)
		start := time.Now()
		first := p.async(t.Context(), make([]Message, 10)...)
		assert.Zero(t, time.Since(start), "there is room")
		assert.Equal(t, 10, p.Pending())
		second := p.async(t.Context(), one("waits")...)
		assert.Equal(t, 300*time.Millisecond, time.Since(start), "until the first is stored")
		require.NoError(t, first.Err())
		require.NoError(t, outcomeOf(p.async(t.Context(), make([]Message, 100)...)), "one call alone may be larger")
		require.NoError(t, second.Err())
		assert.Zero(t, p.Pending())

		large := Message{Body: make([]byte, maxPendingBytes)}
		start = time.Now()
		p.async(t.Context(), large)
		p.async(t.Context(), Message{Body: make([]byte, 1)})
		assert.Equal(t, 300*time.Millisecond, time.Since(start), "bytes are bounded, too")
		require.NoError(t, p.Flush(t.Context()))
	})
}

func TestACallBlockedByThePendingLimitStoresNothing(t *testing.T) {
	for name, test := range map[string]struct {
		want error
		in   time.Duration
	}{
		"deadline": {context.DeadlineExceeded, time.Second},
		"context":  {context.Canceled, 400 * time.Millisecond},
		"close":    {ErrClosed, 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeTopic{latency: time.Minute}
				p := f.limited(t, 2)
				full := p.PublishAsync(t.Context(), func() {}, time.Now().Add(3*time.Second), "t", make([]Message, 2))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				closed := make(chan error, 1)
				switch name {
				case "context":
					time.AfterFunc(test.in, cancel)
				case "close":
					time.AfterFunc(test.in, func() { closed <- p.Close(context.Background()) })
				}
				start := time.Now()
				tooMany := p.async(ctx, one("too many")...)
				assert.Equal(t, test.in, time.Since(start))
				require.ErrorIs(t, tooMany.Err(), test.want)
				require.ErrorIs(t, tooMany.Err(), ErrTooManyPending)
				require.ErrorContains(t, tooMany.Err(), "not stored")
				require.NotErrorIs(t, tooMany.Err(), ErrOutcomeUnknown)
				require.ErrorIs(t, outcomeOf(full), ErrOutcomeUnknown)
				if name == "close" {
					require.NoError(t, <-closed)
				}
			})
		})
	}
}

// TestALargeCallAtThePendingLimitIsNotOvertaken because small calls would starve it.
func TestALargeCallAtThePendingLimitIsNotOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{latency: 100 * time.Millisecond}
		p := f.limited(t, 10)
		p.async(t.Context(), make([]Message, 6)...)
		start := time.Now()
		var calls sync.WaitGroup
		for _, messages := range []int{6, 1} {
			calls.Go(func() {
				p.async(t.Context(), make([]Message, messages)...)
				assert.Equal(t, 100*time.Millisecond, time.Since(start), "%d messages", messages)
			})
			synctest.Wait()
		}
		calls.Wait()
		require.NoError(t, p.Flush(t.Context()))
	})
}

func TestFlushAwaitsEarlierCallsAndReturnsTheFirstErrorOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{latency: 100 * time.Millisecond, answers: []error{errRefused, nil, script.NotStoredError("the second"), script.NotStoredError("not the first")}}
		p := f.publisher(t)
		require.NoError(t, p.Flush(t.Context()), "nothing is under way")
		start := time.Now()
		for range 2 {
			p.async(t.Context(), make([]Message, maxMessages)...)
		}
		short, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, p.Flush(short), context.DeadlineExceeded)
		flushed := make(chan error, 1)
		go func() { flushed <- p.Flush(t.Context()) }()
		synctest.Wait()
		for range 2 {
			p.async(t.Context(), make([]Message, maxMessages)...)
		}
		require.ErrorIs(t, <-flushed, errRefused)
		assert.Equal(t, 200*time.Millisecond, time.Since(start), "it does not wait for later calls")
		require.ErrorContains(t, p.Flush(t.Context()), "the second")
		require.NoError(t, p.Flush(t.Context()))
		require.ErrorIs(t, p.FailAsync(io.ErrNoProgress).Err(), io.ErrNoProgress)
		require.ErrorIs(t, p.Flush(t.Context()), io.ErrNoProgress, "nor are errors lost of calls that did not begin")
	})
}

func TestCloseWaitsForAsyncCallsAndTheirObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reported := 0
		f := &fakeTopic{latency: 300 * time.Millisecond, observer: observe.Observer{Published: func(observe.Published) {
			<-time.After(time.Millisecond)
			reported++
		}}}
		p := f.publisher(t)
		calls := []*Future{p.async(t.Context(), make([]Message, 2*maxMessages)...), p.async(t.Context(), one("a")...)}
		require.NoError(t, p.Close(t.Context()))
		for _, call := range calls {
			require.NoError(t, outcomeOf(call))
		}
		assert.Equal(t, 2, reported)
		assert.Len(t, f.batches, 3)
		late := p.async(t.Context(), one("b")...)
		assert.Equal(t, ErrClosed, late.Err())
	})
}

func TestPublishAsyncHasTheSameOutcomesAsPublish(t *testing.T) {
	full := script.NotStoredError("OOM command not allowed when used memory > 'maxmemory'.")
	denied := redisError("NOPERM this user has no permissions to run the 'evalsha' command")
	shortfall := &script.ReplicationError{Want: 1}
	for name, test := range map[string]struct {
		topic    func(f *fakeTopic)
		messages []Message
	}{
		"stored":                     {func(*fakeTopic) {}, one("a")},
		"nothing to store":           {func(*fakeTopic) {}, nil},
		"refused":                    {answering(full), one("a")},
		"refused after a lost reply": {answering(io.EOF, full), one("a")},
		"not permitted":              {answering(denied), one("a")},
		"stale":                      {answering(queue.ErrStalePublisher), one("a")},
		"too few replicas":           {answering(shortfall, nil), make([]Message, maxMessages+1)},
		"a duplicate":                {func(f *fakeTopic) { f.duplicates = []string{"a"} }, []Message{{Name: "a", Traits: script.Traits{Key: "k"}}}},
		"a partial failure":          {answering(nil, full, nil), make([]Message, 2*maxMessages+1)},
		"a first piece that fails":   {answering(full, nil, nil), make([]Message, 2*maxMessages+1)},
		"a partition that fails":     {func(f *fakeTopic) { f.partitions, f.fail = 2, refusing(1) }, append(inPartition(0), inPartition(1)...)},
		"an unknown topic":           {func(f *fakeTopic) { f.raise = func(context.Context) error { return denied } }, one("a")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				wait, async := &fakeTopic{}, &fakeTopic{}
				events := map[*fakeTopic][]observe.Published{}
				for _, f := range []*fakeTopic{wait, async} {
					test.topic(f)
					f.observer.Published = func(e observe.Published) {
						e.Took = 0 // pauses are random
						events[f] = append(events[f], e)
					}
				}
				p, q := wait.publisher(t), async.publisher(t)
				want := p.Publish(t.Context(), far, "t", test.messages)
				got := outcomeOf(q.PublishAsync(t.Context(), func() {}, far, "t", test.messages))
				assert.Equal(t, fmt.Sprint(want), fmt.Sprint(got))
				var partial, wanted *PartialError
				require.Equal(t, errors.As(want, &wanted), errors.As(got, &partial))
				if wanted != nil {
					assert.Equal(t, wanted.Missing, partial.Missing)
				}
				require.NoError(t, p.Close(t.Context()))
				require.NoError(t, q.Close(t.Context()))
				same := assert.Equal
				if wait.partitions > 1 { // they are stored at once, in any order
					same = assert.ElementsMatch
				}
				assert.Equal(t, wait.names, async.names)
				same(t, wait.numbers(), async.numbers())
				same(t, texts(events[wait]), texts(events[async]))
			})
		})
	}
}

func texts(events []observe.Published) (all []string) {
	for _, e := range events {
		all = append(all, fmt.Sprint(e))
	}
	return all
}

func answering(answers ...error) func(*fakeTopic) {
	return func(f *fakeTopic) { f.answers = answers }
}

// refusing refuses what is for a partition.
func refusing(partition int) func(int) error {
	return func(p int) error {
		if p == partition {
			return errRefused
		}
		return nil
	}
}

// TestALargeCallIsStoredBeforeTheNextCall although it needs several batches.
func TestALargeCallIsStoredBeforeTheNextCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{latency: time.Millisecond}
		p := f.publisher(t)
		for call := range 3 {
			messages := make([]Message, 3*maxMessages/2)
			for i := range messages {
				messages[i].Name = fmt.Sprintf("0/%d", call*len(messages)+i)
			}
			p.async(t.Context(), messages...)
		}
		require.NoError(t, p.Flush(t.Context()))
		require.NoError(t, p.Close(t.Context()))
		require.Len(t, f.names[0], 9*maxMessages/2)
		inOrder(t, f.names[0])
	})
}

// TestAGoexitInOnDoneDoesNotStopOtherCallbacks: a failed check of a test calls Goexit.
func TestAGoexitInOnDoneDoesNotStopOtherCallbacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := (&fakeTopic{latency: time.Millisecond}).publisher(t) // the functions are there before the calls end
		var reported atomic.Int64
		for range 3 {
			p.async(t.Context(), Message{Name: "a"}).OnDone(func(error) {
				reported.Add(1)
				runtime.Goexit()
			})
		}
		require.NoError(t, p.Flush(t.Context()))
		assert.Equal(t, int64(3), reported.Load())
	})
}

// TestACallThatJoinsAnExpiredBatchEndsAtItsDeadline while the sender still waits for Redis, which ignores contexts.
func TestACallThatJoinsAnExpiredBatchEndsAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &hungTopic{}
		p := closed(t, New(Config{Open: func(string) Topic { return f }, Partitions: 1}))
		sent := p.async(t.Context(), Message{Name: "sent"})
		synctest.Wait()
		waits := p.async(t.Context(), Message{Name: "waits"})
		require.ErrorIs(t, outcomeOf(sent), ErrOutcomeUnknown)
		require.ErrorIs(t, outcomeOf(waits), context.DeadlineExceeded)
		start := time.Now()
		again := p.async(t.Context(), Message{Name: "again"})
		require.ErrorIs(t, outcomeOf(again), context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(start))
	})
}

// hungTopic does not answer, and keeps the caller for longer than its context lasts.
type hungTopic struct{ fakeTopic }

func (h *hungTopic) Push(context.Context, int, queue.Batch) ([]queue.Duplicate, error) {
	<-time.After(3 * time.Second)
	return nil, io.EOF
}

func TestAnAsyncCallEndsAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{latency: time.Minute}
		p := f.publisher(t)
		start := time.Now()
		async := func(in time.Duration) *Future {
			return p.PublishAsync(t.Context(), func() {}, start.Add(in), "t", one("a"))
		}
		require.ErrorIs(t, async(0).Err(), context.DeadlineExceeded)
		require.NoError(t, p.lanes.begin(), "it is not counted any more")
		p.lanes.calls.Done()
		sent := async(3 * time.Second)
		synctest.Wait()
		waits, sooner, later := async(2*time.Second), async(time.Second), async(5*time.Second)
		for _, test := range []struct {
			call    *Future
			in      time.Duration
			unknown bool
		}{{sooner, time.Second, false}, {waits, 2 * time.Second, false}, {sent, 3 * time.Second, true}, {later, 5 * time.Second, true}} {
			err := outcomeOf(test.call)
			assert.Equal(t, test.in, time.Since(start))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Equal(t, test.unknown, errors.Is(err, ErrOutcomeUnknown))
		}
		require.NoError(t, p.Close(t.Context()))
		assert.Empty(t, f.batches)
	})
}

// TestACallCancelledBeforeItIsSentIsNotStored, and the calls around it are. The cause of the cancellation is not taken for its outcome.
func TestACallCancelledBeforeItIsSentIsNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{latency: 500 * time.Millisecond}
		p := f.publisher(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		other := fmt.Errorf("another call: %w", &script.ReplicationError{Want: 1})
		var stopped atomic.Int64
		async := func(ctx context.Context, name string) *Future {
			return p.PublishAsync(ctx, func() { stopped.Add(1) }, time.Now().Add(time.Minute), "t", one(name))
		}
		first := async(ctx, "sent")
		synctest.Wait()
		withdrawn, stays := async(ctx, "withdrawn"), async(t.Context(), "stays")
		time.AfterFunc(100*time.Millisecond, func() { cancel(other) })
		require.NoError(t, outcomeOf(stays))
		require.ErrorIs(t, outcomeOf(first), ErrOutcomeUnknown)
		late := async(ctx, "late")
		for _, f := range []*Future{withdrawn, first, late} {
			require.ErrorIs(t, outcomeOf(f), context.Canceled)
			require.ErrorContains(t, f.Err(), "another call")
			assert.False(t, isStored(f.Err()), f.Err())
			assert.Equal(t, f == first, errors.Is(f.Err(), ErrOutcomeUnknown), f.Err())
		}
		require.NoError(t, p.Close(t.Context()))
		assert.Equal(t, []string{"stays"}, f.names[0])
		assert.Equal(t, int64(4), stopped.Load())
	})
}

func TestAnInterruptedLargeCallReportsWhatWasStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{latency: 400 * time.Millisecond}
		p := f.publisher(t)
		var partial *PartialError
		err := outcomeOf(p.async(t.Context(), make([]Message, 4*maxMessages)...)) // for a second
		require.ErrorAs(t, err, &partial)
		require.ErrorIs(t, err, ErrOutcomeUnknown)
		assert.Equal(t, 2*maxMessages, partial.Stored)
		assert.Len(t, partial.Missing, 2*maxMessages)
		assert.Equal(t, 2*maxMessages, partial.Missing[0])
		require.NoError(t, p.Close(t.Context()))
		assert.Len(t, f.names[0], 2*maxMessages)
	})
}

func TestASlowObserverDoesNotBlockTheSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, reported := make(chan struct{}), 0
		f := &fakeTopic{latency: time.Millisecond, observer: observe.Observer{Published: func(e observe.Published) {
			if e.Err == nil { // others are told in place
				<-release
				reported++
			}
		}}}
		p := f.limited(t, 20)
		for range 10 {
			require.NoError(t, outcomeOf(p.async(t.Context(), make([]Message, 2)...)))
		}
		require.ErrorIs(t, p.async(t.Context(), one("a")...).Err(), ErrTooManyPending, "but it bounds what waits for it")
		close(release)
		require.Error(t, p.Flush(t.Context()))
		assert.Equal(t, 10, reported)
	})
}

func TestPanicsInCallbacksAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var panics []any
		f := &fakeTopic{latency: time.Millisecond} // the hook is there before the call ends
		p := New(Config{
			Open: func(string) Topic { return f }, Partitions: 1,
			Observer: observe.Observer{Published: func(observe.Published) { panic("observer") }},
			Panicked: func(value any, _ []byte) { panics = append(panics, value) },
		})
		for range 3 {
			call := p.async(t.Context(), one("a")...)
			call.OnDone(func(error) { panic("hook") })
			require.NoError(t, outcomeOf(call))
			require.NoError(t, p.Flush(t.Context()))
		}
		require.NoError(t, p.Close(t.Context()))
		assert.Equal(t, []any{"observer", "hook", "observer", "hook", "observer", "hook"}, panics)
	})
}

func TestOnDoneIsCalledOnceWithTheOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{latency: time.Millisecond, answers: []error{errRefused}}
		p := f.publisher(t)
		call, outcomes := p.async(t.Context(), one("a")...), []error{}
		for range 2 {
			call.OnDone(func(err error) { outcomes = append(outcomes, err) })
		}
		assert.Empty(t, outcomes)
		require.ErrorIs(t, p.Flush(t.Context()), errRefused)
		call.OnDone(func(err error) { outcomes = append(outcomes, err) })
		require.Len(t, outcomes, 3)
		for _, err := range outcomes {
			require.ErrorIs(t, err, errRefused)
		}
	})
}

func TestCallsForANewTopicWaitForItAndStayInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{raise: func(context.Context) error {
			<-time.After(500 * time.Millisecond)
			return nil
		}}
		p := f.publisher(t)
		start := time.Now()
		for n := range 3 {
			p.async(t.Context(), Message{Name: fmt.Sprintf("0/%d", n)})
		}
		assert.Equal(t, 500*time.Millisecond, time.Since(start), "one look for the topic")
		require.NoError(t, p.Flush(t.Context()))
		require.NoError(t, p.Close(t.Context()))
		inOrder(t, f.names[0])
	})
}

// TestPendingAsyncCallsUseNoGoroutines while Redis hangs.
func TestPendingAsyncCallsUseNoGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{}
		p := f.publisher(t)
		require.NoError(t, outcomeOf(p.async(t.Context(), one("a")...)))
		f.latency = time.Minute
		before := runtime.NumGoroutine()
		for range 3000 {
			p.async(t.Context(), one("a")...)
		}
		assert.Less(t, runtime.NumGoroutine(), before+10)
		require.ErrorIs(t, p.Flush(t.Context()), context.DeadlineExceeded)
	})
}
