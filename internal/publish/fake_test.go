package publish

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// fakeTopic answers each batch with the next of its answers; without any left it stores the
// batch. It stands for all topics of a Publisher.
type fakeTopic struct {
	partitions    int // 0 stands for 1
	latency       time.Duration
	observer      observe.Observer
	fail          func(partition int) error
	cancel        func(ctx context.Context) error
	raise         func(ctx context.Context) error
	enlist        func() error
	endTakes      time.Duration // how long EndExpired takes
	deleteRecords func(ctx context.Context)
	repeatable    func(b queue.Batch) bool // whether the client has sent it twice

	mu             sync.Mutex
	answers        []error
	duplicates     []string    // names of messages that are duplicates
	last           queue.Batch // that was stored
	outcomes       []error     // answers of Outcome; without any left it tells the truth
	batches        []queue.Batch
	names          map[int][]string // names of the messages, by partition
	key            string           // the key that a message holds
	sought         int              // calls of Cancel
	asked          int              // calls of RaisePartitions
	ended          []queue.Ended    // what EndExpired returns
	endFails       error
	deletedRecords []string // partitions and publishers

	callersOver atomic.Bool // DeleteCallerRecords was called
}

// publisher returns a Publisher whose topics are the fake. It is closed with the test at the latest.
func (f *fakeTopic) publisher(t *testing.T) *Publisher { t.Helper(); return f.limited(t, 0) }

// limited returns one with a limit of messages, 0 for the usual one.
func (f *fakeTopic) limited(t *testing.T, limit int) *Publisher {
	t.Helper()
	return closed(t, New(Config{
		Open: func(string) Topic { return f }, Partitions: max(1, f.partitions), Observer: f.observer, MaxPending: limit,
	}))
}

// closed is a Publisher that is closed with the test.
func closed(t *testing.T, p *Publisher) *Publisher {
	t.Helper()
	t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) })
	return p
}

func one(name string) []Message { return []Message{{Name: name}} }

// far is a deadline that no test reaches.
var far = time.Now().Add(1000 * time.Hour)

func (f *fakeTopic) EnsureListed(context.Context) error {
	if f.enlist != nil {
		return f.enlist()
	}
	return nil
}

func (f *fakeTopic) RaisePartitions(ctx context.Context, wanted int) (int, error) {
	f.mu.Lock()
	f.asked++
	f.mu.Unlock()
	if f.raise != nil {
		if err := f.raise(ctx); err != nil {
			return 0, err
		}
	}
	return max(wanted, f.partitions), nil
}

func (f *fakeTopic) EndExpired(context.Context) ([]queue.Ended, error) {
	if f.endTakes > 0 {
		<-time.After(f.endTakes)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended, f.endFails
}

func (f *fakeTopic) DeleteRecords(ctx context.Context, partition int, publishers []string) error {
	if f.deleteRecords != nil {
		f.deleteRecords(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range publishers {
		f.deletedRecords = append(f.deletedRecords, fmt.Sprint(partition, " ", name))
	}
	return nil
}

func (f *fakeTopic) DeleteCallerRecords(context.Context) error {
	f.callersOver.Store(true)
	return nil
}

func (f *fakeTopic) WhyNoAnswer() error { return errSilent }

var errSilent = errors.New("no answer from Redis")

func (f *fakeTopic) numbers() []int64 {
	var list []int64
	for _, b := range f.batches {
		list = append(list, b.Number)
	}
	return list
}

func (f *fakeTopic) Push(ctx context.Context, partition int, b queue.Batch) ([]queue.Duplicate, error) {
	if f.latency > 0 {
		select {
		case <-time.After(f.latency):
		case <-ctx.Done():
			b.Repeatable.Store(true)
			return nil, ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.batches = append(f.batches, b)
	err := f.answer(partition)
	if err != nil || f.repeatable != nil && f.repeatable(b) {
		b.Repeatable.Store(true)
	}
	if isStored(err) || errors.Is(err, errLostReply) {
		f.keep(partition, b)
		f.last = b
	}
	if isStored(err) {
		return f.duplicatesOf(b), err
	}
	return nil, err
}

// errLostReply is the error of a push whose batch is stored.
var errLostReply = fmt.Errorf("lost reply: %w", io.EOF)

func (f *fakeTopic) Outcome(_ context.Context, _ int, b queue.Batch) (stored bool, rejected []queue.Duplicate, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.outcomes) > 0 {
		err, f.outcomes = f.outcomes[0], f.outcomes[1:]
	}
	if err != nil {
		return false, nil, err
	}
	if f.last.Publisher == b.Publisher && f.last.Number == b.Number {
		return true, f.duplicatesOf(b), nil
	}
	return false, nil, nil
}

func (f *fakeTopic) duplicatesOf(b queue.Batch) (list []queue.Duplicate) {
	for call, messages := range b.Calls {
		for i, m := range messages {
			if slices.Contains(f.duplicates, m.Name) {
				list = append(list, queue.Duplicate{Call: call, Message: i})
			}
		}
	}
	return list
}

func (f *fakeTopic) answer(partition int) error {
	if f.fail != nil {
		return f.fail(partition)
	}
	if len(f.answers) == 0 {
		return nil
	}
	err := f.answers[0]
	f.answers = f.answers[1:]
	return err
}

func (f *fakeTopic) keep(partition int, b queue.Batch) {
	if f.names == nil {
		f.names = map[int][]string{}
	}
	for _, call := range b.Calls {
		for _, m := range call {
			f.names[partition] = append(f.names[partition], m.Name)
		}
	}
}

func (f *fakeTopic) Cancel(ctx context.Context, key string) (queue.Status, error) {
	if f.cancel != nil {
		if err := f.cancel(ctx); err != nil {
			return queue.Status{}, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sought++
	if err := f.answer(wholeTopic); err != nil {
		return queue.Status{}, err
	}
	if key != f.key {
		return queue.Status{}, queue.ErrNotFound
	}
	f.key = ""
	return queue.Status{ID: "id of " + key}, nil
}

func (f *fakeTopic) Reschedule(_ context.Context, key string, _ time.Duration) (queue.Status, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if key != f.key {
		return queue.Status{}, queue.ErrNotFound
	}
	return queue.Status{ID: "id of " + key}, nil
}

// errOf is the error of a call.
func errOf[T any](_ T, err error) error { return err }

// distinct numbers the values in the order of their first appearance.
func distinct(values []string) []int {
	known := map[string]int{}
	list := make([]int, len(values))
	for i, v := range values {
		if _, seen := known[v]; !seen {
			known[v] = len(known)
		}
		list[i] = known[v]
	}
	return list
}

// loadingError is what Redis says while it loads its data.
func loadingError() error { return redisError("LOADING Redis is loading the dataset in memory") }

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

var _ redis.Error = redisError("")
