package publish

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// slowTopic is a topic behind a slow connection, which cuts batches with bad messages.
type slowTopic struct {
	fakeTopic
	bandwidth int           // bytes/s; 0: no limit
	link      chan struct{} // holds a value while a batch is under way
}

func (s *slowTopic) publisher(t *testing.T) *Publisher {
	t.Helper()
	return closed(t, New(Config{Open: func(string) Topic { return s }, Partitions: 1}))
}

func (s *slowTopic) Push(ctx context.Context, partition int, b queue.Batch) ([]queue.Duplicate, error) {
	bytes, bad := 0, false
	for _, call := range b.Calls {
		for i := range call {
			bytes += len(call[i].Body) + messageOverhead
			bad = bad || call[i].Name == "bad"
		}
	}
	if bad {
		s.mu.Lock()
		s.answers = []error{io.EOF}
		s.mu.Unlock()
		return s.fakeTopic.Push(ctx, partition, b)
	}
	if s.bandwidth > 0 {
		took := time.Duration(bytes) * time.Second / time.Duration(s.bandwidth)
		s.link <- struct{}{} // not a mutex, which would stop the virtual time
		<-time.After(min(took, b.Timeout))
		<-s.link
		if took > b.Timeout {
			b.Repeatable.Store(true)
			return nil, context.DeadlineExceeded
		}
	}
	return s.fakeTopic.Push(ctx, partition, b)
}

// publishAll publishes messages, each with a call of its own, all at the same time.
func publishAll(t *testing.T, p *Publisher, deadline time.Duration, messages []Message) []error {
	t.Helper()
	errs, until := make([]error, len(messages)), time.Now().Add(deadline)
	var calls sync.WaitGroup
	for i, m := range messages {
		calls.Go(func() { errs[i] = p.Publish(context.Background(), until, "t", []Message{m}) })
	}
	calls.Wait()
	return errs
}

func TestASlowConnectionStoresEachMessageOnce(t *testing.T) {
	for _, bandwidth := range []int{50e3, 300e3, 1500e3, 10e6} {
		for _, size := range []int{200, 2000, 10e3, 100e3, 1e6} {
			t.Run(fmt.Sprint(bandwidth, " B/s ", size, " B"), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := &slowTopic{bandwidth: bandwidth, link: make(chan struct{}, 1)}
					p := f.publisher(t)
					messages := make([]Message, min(2000, max(2, 10*bandwidth/size)))
					for i := range messages {
						messages[i] = Message{Name: fmt.Sprint(i), Body: make([]byte, size)}
					}
					ideal := time.Duration(len(messages)*(size+messageOverhead)) * time.Second / time.Duration(bandwidth)
					start := time.Now()
					for _, err := range publishAll(t, p, 10*ideal, messages) {
						require.NoError(t, err)
					}
					assert.Less(t, time.Since(start), 2*ideal+20*time.Second)
					require.NoError(t, p.Close(context.Background()))
					assert.Len(t, f.names[0], len(messages), "each is stored once")
				})
			})
		}
	}
}

func TestAFailingCallDoesNotFailItsBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &slowTopic{}
		p := f.publisher(t)
		messages := make([]Message, 100)
		for i := range messages {
			messages[i].Name = fmt.Sprint(i)
		}
		messages[17].Name, messages[81].Name = "bad", "bad"
		for i, err := range publishAll(t, p, 10*time.Second, messages) {
			if messages[i].Name != "bad" {
				require.NoError(t, err)
				continue
			}
			require.ErrorIs(t, err, io.EOF)
			require.ErrorContains(t, err, "not stored")
			require.NotErrorIs(t, err, ErrOutcomeUnknown)
		}
		require.NoError(t, p.Close(context.Background()))
		assert.Len(t, f.names[0], 98, "each is stored once")
		numbers := f.numbers()
		assert.True(t, slices.IsSorted(numbers))
		assert.Len(t, slices.Compact(numbers), len(numbers), "no number is used again")
	})
}

// TestACallTooLargeForItsConnectionDoesNotBlockOthers for longer than an attempt.
func TestACallTooLargeForItsConnectionDoesNotBlockOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &slowTopic{bandwidth: 50e3, link: make(chan struct{}, 1)}
		p := f.publisher(t)
		var calls sync.WaitGroup
		start := time.Now()
		calls.Go(func() {
			err := p.Publish(context.Background(), start.Add(3*time.Minute), "t", []Message{{Name: "large", Body: make([]byte, 10e6)}})
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
		for range 3 {
			<-time.After(time.Second) // the large call is under way, or waits
			require.NoError(t, p.Publish(context.Background(), far, "t", one("small")))
		}
		assert.Less(t, time.Since(start), 2*time.Minute)
		calls.Wait()
		require.NoError(t, p.Close(context.Background()))
		assert.Len(t, f.names[0], 3)
	})
}

// TestACallMayExpireDuringItsRetry at the same moment, without a data race.
func TestACallMayExpireDuringItsRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{latency: 10 * time.Millisecond}
		p := f.publisher(t)
		for n := range 1000 {
			f.mu.Lock()
			f.answers = []error{loadingError()}
			f.mu.Unlock()
			until := time.Now().Add(f.latency + time.Duration(n%3)*time.Nanosecond)
			if err := p.Publish(t.Context(), until, "t", one("a")); err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
		}
	})
}

// TestEachCallGetsItsOutcomeAfterALostReply, and the batch is not stored again.
func TestEachCallGetsItsOutcomeAfterALostReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{answers: []error{errLostReply}, outcomes: []error{io.EOF, loadingError()}, duplicates: []string{"1"}}
		p := f.publisher(t)
		errs := publishAll(t, p, 10*time.Second, slices.Concat(one("0"), one("1"), one("2")))
		require.NoError(t, p.Close(t.Context()))
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], ErrDuplicate)
		require.NoError(t, errs[2])
		assert.ElementsMatch(t, []string{"0", "1", "2"}, f.names[0])
	})
}

// TestExpiredCallsReportWhetherTheirBatchIsStored, as far as it is known.
func TestExpiredCallsReportWhetherTheirBatchIsStored(t *testing.T) {
	for name, known := range map[string]bool{"it is not stored": true, "Redis does not answer": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeTopic{}
				for range 1000 {
					f.answers = append(f.answers, loadingError())
					if !known {
						f.outcomes = append(f.outcomes, io.EOF)
					}
				}
				p := f.publisher(t)
				errs := make([]error, 2)
				var calls sync.WaitGroup
				for i := range errs { // they begin and leave one after another, so none leaves just before the other is sent
					until := time.Now().Add(time.Duration(10+i) * time.Second)
					calls.Go(func() { errs[i] = p.Publish(t.Context(), until, "t", one("")) })
					synctest.Wait()
				}
				calls.Wait()
				unknown := 0
				for _, err := range errs {
					require.ErrorIs(t, err, context.DeadlineExceeded)
					if errors.Is(err, ErrOutcomeUnknown) {
						unknown++
					}
				}
				assert.Equal(t, map[bool]int{true: 0, false: 2}[known], unknown)
			})
		})
	}
}
