package publish

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// busyTopic counts how many batches are under way.
type busyTopic struct {
	fakeTopic
	mu      sync.Mutex
	current map[string]int // by record
	records map[string]int // the most at once, by record
	sum     int
	most    int
	keyed   map[string]bool
}

func (f *busyTopic) Push(ctx context.Context, partition int, b queue.Batch) ([]queue.Duplicate, error) {
	f.count(b, 1)
	defer f.count(b, -1)
	return f.fakeTopic.Push(ctx, partition, b)
}

func (f *busyTopic) count(b queue.Batch, by int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current == nil {
		f.current, f.records, f.keyed = map[string]int{}, map[string]int{}, map[string]bool{}
	}
	f.sum += by
	f.current[b.Publisher] += by
	f.most = max(f.most, f.sum)
	f.records[b.Publisher] = max(f.records[b.Publisher], f.current[b.Publisher])
	for _, call := range b.Calls {
		for _, m := range call {
			if m.Key != "" {
				f.keyed[b.Publisher] = true
			}
		}
	}
}

func (f *busyTopic) publisher() *Publisher {
	return New(Config{Open: func(string) Topic { return f }, Partitions: 1})
}

// publishing lets callers publish for a while; every so many messages have a key. Each caller
// has its own pause between two calls: else all might share each batch.
func (f *busyTopic) publishing(t *testing.T, callers, keyed int) {
	t.Helper()
	p := f.publisher()
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for i := range 50 {
				m := Message{Name: fmt.Sprintf("%d/%d", c, i)}
				if keyed > 0 && i%keyed == 0 {
					m.Key = m.Name
				}
				assert.NoError(t, p.Publish(t.Context(), far, "t", []Message{m}))
				time.Sleep(time.Duration(c) * 37 * time.Microsecond) //nolint:forbidigo // in virtual time
			}
		})
	}
	all.Wait()
	require.NoError(t, p.Close(t.Context()))
	assert.Len(t, f.names[0], callers*50, "each message is stored once")
	for record, most := range f.records {
		assert.Equal(t, 1, most, "a record sees one batch at a time: %s", record)
	}
}

func TestSeveralBatchesAreUnderWayWhileRedisIsFar(t *testing.T) {
	for _, test := range []struct {
		latency        time.Duration
		callers, keyed int
		most           int
	}{
		{time.Millisecond, 20, 0, maxSenders},
		{time.Millisecond, 1, 0, 1},
		{200 * time.Microsecond, 20, 0, 1},
		{time.Millisecond, 20, 1, 1},
		{time.Millisecond, 20, 7, maxSenders},
	} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &busyTopic{fakeTopic: fakeTopic{latency: test.latency}}
				f.publishing(t, test.callers, test.keyed)
				assert.LessOrEqual(t, f.most, test.most)
				assert.Equal(t, test.most > 1, f.most > 1, "at most %d at once", f.most)
				for record := range f.keyed {
					assert.NotContains(t, strings.TrimPrefix(record, f.batches[0].Publisher), "/", "messages with keys have one record")
				}
			})
		})
	}
}

// TestCallsOfOneGoroutineStayInOrder while others publish as well.
func TestCallsOfOneGoroutineStayInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &busyTopic{fakeTopic: fakeTopic{latency: time.Millisecond}}
		f.publishing(t, 10, 3)
		last := map[string]int{}
		for _, name := range f.names[0] {
			var caller, number int
			_, err := fmt.Sscanf(name, "%d/%d", &caller, &number)
			require.NoError(t, err)
			key := fmt.Sprint(caller)
			assert.Equal(t, last[key], number, "the next of caller %d", caller)
			last[key]++
		}
	})
}

// TestABatchFindsASenderWhenRedisComesNear has two batches wait for the second sender of a lane
// while the first has ended, and Redis come near with the first batch: then only the first
// sender may send the other.
func TestABatchFindsASenderWhenRedisComesNear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := (&fakeTopic{latency: 100 * time.Microsecond}).publisher()
		require.NoError(t, p.Publish(t.Context(), far, "t", one("opens the lane")))
		to := destination{topic: "t"}
		lanes := p.lanes
		lanes.mu.Lock()
		l := lanes.open[to]
		lanes.mu.Unlock()
		time.Sleep(linger / 2) //nolint:forbidigo // in virtual time
		lanes.mu.Lock()
		l.senders[1].runs = true
		lanes.running.Go(func() { lanes.run(to, l, 1) })
		lanes.mu.Unlock()
		time.Sleep(linger * 3 / 4) //nolint:forbidigo // in virtual time
		var calls sync.WaitGroup
		lanes.mu.Lock() // both calls join before the sender looks
		require.False(t, l.senders[0].runs)
		require.True(t, l.senders[1].runs)
		l.trips.mean = farTrip + 10*time.Microsecond
		for range 2 {
			calls.Go(func() {
				assert.NoError(t, errOf(lanes.store(t.Context(), time.Now().Add(time.Second), to, make([]queue.Message, 300))))
			})
		}
		lanes.mu.Unlock()
		calls.Wait()
		require.NoError(t, p.Close(t.Context()))
	})
}

// TestAnOutageIsNoDistance: the pauses between attempts are no trips.
func TestAnOutageIsNoDistance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &busyTopic{fakeTopic: fakeTopic{latency: 100 * time.Microsecond, answers: []error{loadingError(), loadingError()}}}
		f.publishing(t, 20, 0)
		assert.Equal(t, 1, f.most)
	})
}

// TestAFailureIsNoDistance: a call that hangs and fails says nothing about those that work.
func TestAFailureIsNoDistance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTopic{latency: 3 * time.Second, answers: []error{script.Refusal("refused")}}
		p := f.publisher()
		require.Error(t, p.Publish(t.Context(), far, "t", one("a")))
		synctest.Wait()
		p.lanes.mu.Lock()
		assert.Zero(t, p.lanes.open[destination{topic: "t"}].trips)
		p.lanes.mu.Unlock()
		require.NoError(t, p.Close(t.Context()))
	})
}

func TestTheSendersOfALaneEndWhenItIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &busyTopic{fakeTopic: fakeTopic{latency: time.Millisecond}}
		p := f.publisher()
		var all sync.WaitGroup
		for n := range 8 {
			all.Go(func() {
				time.Sleep(time.Duration(n) * 200 * time.Microsecond) //nolint:forbidigo // in virtual time
				for range 9 {
					assert.NoError(t, p.Publish(t.Context(), far, "t", one("a")))
				}
			})
		}
		all.Wait()
		require.Greater(t, len(f.records), 1)
		time.Sleep(2 * linger) //nolint:forbidigo // in virtual time
		p.lanes.mu.Lock()
		for _, s := range p.lanes.open[destination{topic: "t"}].senders {
			assert.False(t, s.runs)
		}
		p.lanes.mu.Unlock()
		require.NoError(t, p.Publish(t.Context(), far, "t", one("b")))
		require.NoError(t, p.Close(t.Context()))
	})
}
