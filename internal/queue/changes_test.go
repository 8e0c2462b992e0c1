package queue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// trips is a hook of a client that decides how a round trip with script calls ends.
type trips struct {
	redistest.Hook
	through func(trip func() error) error
}

func (t trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return t.trip(cmd, func() error { return next(context.WithoutCancel(ctx), cmd) })
	}
}

func (t trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return t.trip(cmds[0], func() error { return next(context.WithoutCancel(ctx), cmds) })
	}
}

func (t trips) trip(first redis.Cmder, trip func() error) error {
	if !strings.HasPrefix(first.Name(), "eval") { // of a new connection
		return trip()
	}
	return t.through(trip)
}

// via returns the topic of the scene in a process whose round trips go through a function.
func (r *scene) via(through func(trip func() error) error) *Topic {
	r.T.Helper()
	client := redis.NewClient(r.Client.Options())
	r.T.Cleanup(func() { _ = client.Close() })
	client.AddHook(trips{through: through})
	return newStore(r.T, client).Topic(r.partition.Topic())
}

// pushMany publishes a message for each of some keys, k0 and so on.
func (r *scene) pushMany(count int) {
	r.T.Helper()
	for n := range count {
		r.push(after(keyed(n, fmt.Sprint("k", n)), 60))
	}
}

// together makes calls for k0 and so on concurrently.
func together(count int, call func(key string) error) []error {
	errs := make([]error, count)
	var calls sync.WaitGroup
	for n := range count {
		calls.Go(func() { errs[n] = call(fmt.Sprint("k", n)) })
	}
	calls.Wait()
	return errs
}

func TestACancelTakesOneRoundTrip(t *testing.T) {
	r := newScene(t)
	r.group("g")
	r.pushMany(3)
	sent := 0
	topic := r.via(func(trip func() error) error {
		sent++
		return trip()
	})
	require.NoError(t, topic.EnsureListed(t.Context()))
	require.NoError(t, errOf(topic.Reschedule(t.Context(), "k0", time.Hour))) // learns the groups and the time
	require.NoError(t, errOf(topic.Cancel(t.Context(), "k0")))                // and Redis, both scripts
	sent = 0
	require.NoError(t, errOf(topic.Cancel(t.Context(), "k1")))
	require.NoError(t, errOf(topic.Reschedule(t.Context(), "k2", time.Hour)))
	assert.Equal(t, 2, sent)
}

func TestCancelsShareRoundTrips(t *testing.T) {
	const many = 1000
	r := newScene(t)
	r.group("g")
	r.pushMany(many)
	var mu sync.Mutex
	sent := 0
	topic := r.via(func(trip func() error) error {
		mu.Lock()
		sent++
		mu.Unlock()
		<-time.After(time.Millisecond) // so that other calls wait
		return trip()
	})
	for _, err := range together(many, func(key string) error { return errOf(topic.Cancel(t.Context(), key)) }) {
		require.NoError(t, err)
	}
	assert.Less(t, sent, many/2)
	assert.Equal(t, map[string]string{"groups g": "member"}, r.State())
}

// TestAResentPipelineChangesNothing: the client resends a pipeline whose answer is lost, and the first copy may arrive last,
// when other messages have the keys.
func TestAResentPipelineChangesNothing(t *testing.T) {
	const many = 100
	for name, call := range map[string]func(topic *Topic, key string) error{
		"cancel":     func(topic *Topic, key string) error { return errOf(topic.Cancel(t.Context(), key)) },
		"reschedule": func(topic *Topic, key string) error { return errOf(topic.Reschedule(t.Context(), key, time.Hour)) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newScene(t)
			r.group("g")
			r.pushMany(many)
			var mu sync.Mutex
			var copies []func() error
			topic := r.via(func(trip func() error) error {
				_ = trip() // its answer is lost
				mu.Lock()
				copies = append(copies, trip)
				mu.Unlock()
				return trip()
			})
			for _, err := range together(many, func(key string) error { return call(topic, key) }) {
				require.NoError(t, err)
			}
			for n := range many { // other messages take the keys
				_ = errOf(r.change(cancelBy("key", fmt.Sprint("k", n))))
				r.push(after(keyed(many+n, fmt.Sprint("k", n)), 60))
			}
			before := r.State()
			for _, again := range copies {
				require.NoError(t, again())
			}
			assert.Equal(t, before, r.State())
			require.NoError(t, topic.DeleteCallerRecords(t.Context()))
			for _, again := range copies {
				require.NoError(t, again())
			}
			assert.Equal(t, before, r.State(), "the records are kept, since copies may come")
		})
	}
}

// TestARepeatedRescheduleKeepsTheFirstDueTime: a delay counts from when Redis has run the call for the first time.
func TestARepeatedRescheduleKeepsTheFirstDueTime(t *testing.T) {
	r := newScene(t)
	r.group("g")
	r.pushMany(1)
	due := func() []redis.Z {
		scores, err := r.Client.ZRangeWithScores(t.Context(), r.partition.Key(script.Scheduled, ""), 0, -1).Result()
		require.NoError(t, err)
		return scores
	}
	var first []redis.Z
	topic := r.via(func(trip func() error) error {
		_ = trip() // its answer is lost
		first = due()
		<-time.After(5 * time.Millisecond)
		return trip()
	})
	require.NoError(t, topic.EnsureListed(t.Context()))
	require.NoError(t, errOf(topic.Reschedule(t.Context(), "k0", time.Hour)))
	assert.Equal(t, first, due())
}

// TestAnUnsentCancelReportsThatNothingChanged, and a cancel that was sent reports an unknown outcome.
func TestAnUnsentCancelReportsThatNothingChanged(t *testing.T) {
	r := newScene(t)
	r.pushMany(1)
	hung, release := make(chan struct{}, maxPipelines), make(chan struct{})
	topic := r.via(func(trip func() error) error {
		select {
		case hung <- struct{}{}:
			<-release
		case <-release: // also for the calls that load the script after an EVALSHA
		}
		return trip()
	})
	topic.store.rememberListing(topic.name)
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error)
	for range maxPipelines {
		go func() { ended <- errOf(topic.Cancel(ctx, "unknown")) }()
		<-hung
	}
	brief, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	err := errOf(topic.Cancel(brief, "k0"))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, ErrOutcomeUnknown)
	assert.ErrorContains(t, err, "nothing changed: ")
	cancel(ErrNotFound) // as errgroup does after another call
	for range maxPipelines {
		err := <-ended
		require.ErrorIs(t, err, ErrOutcomeUnknown)
		require.ErrorIs(t, err, context.Canceled)
	}
	late := errOf(topic.Cancel(ctx, "k0"))
	require.ErrorIs(t, late, context.Canceled)
	require.NotErrorIs(t, late, ErrNotFound)
	close(release)
	require.NoError(t, errOf(topic.Cancel(t.Context(), "k0")), "those that hang no longer occupy the senders")
	require.NoError(t, topic.store.WaitIdle(t.Context()))
}

func TestAnUnconnectedCancelReportsThatNothingChanged(t *testing.T) {
	client := redis.NewClient(&redis.Options{MaxRetries: -1, Dialer: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no network")
	}})
	t.Cleanup(func() { _ = client.Close() })
	topic := newStore(t, client).Topic("t")
	topic.store.rememberListing(topic.name)
	err := errOf(topic.Cancel(t.Context(), "k"))
	require.ErrorContains(t, err, "nothing changed: ")
	require.NotErrorIs(t, err, ErrOutcomeUnknown)
}

func TestALostCancelReplyIsAnUnknownOutcome(t *testing.T) {
	r := newScene(t)
	r.pushMany(1)
	lost := errors.New("lost")
	topic := r.via(func(trip func() error) error { return errors.Join(trip(), lost) })
	topic.store.rememberListing(topic.name)
	_, _, err := topic.Partition(0).change(t.Context(), cancelBy("key", "k0"))
	require.ErrorIs(t, err, ErrOutcomeUnknown)
}

// TestCallsAreSentInDeadlineOrder even if many calls wait.
func TestCallsAreSentInDeadlineOrder(t *testing.T) {
	var cs changes
	now := time.Now()
	var want []*change
	for n := range 200 {
		want = append(want, &change{ctx: t.Context(), deadline: now.Add(time.Duration(n) * time.Second)})
	}
	for n := range want {
		cs.join(want[(n*77+5)%200]) // each once
	}
	var got []*change
	for {
		pipe, _ := cs.next()
		if pipe == nil {
			break
		}
		pipe.cancel()
		assert.Less(t, len(pipe.changes), 200)
		got = append(got, pipe.changes...)
	}
	assert.Len(t, got, 200)
	for n := range got {
		require.Same(t, want[n], got[n])
	}
}

// TestAMessageInANewPartitionIsCancelled although the process has not seen the partition.
func TestAMessageInANewPartitionIsCancelled(t *testing.T) {
	r := newScene(t)
	r.pushMany(1)
	topic := r.via(func(trip func() error) error { return trip() })
	require.NoError(t, topic.EnsureListed(t.Context()))
	require.NoError(t, errOf(topic.Reschedule(t.Context(), "k0", time.Minute)))
	other := topic.again()
	number, err := other.RaisePartitions(t.Context(), 3)
	require.NoError(t, err)
	newer := keyed(9, "k0")
	_, err = other.Push(t.Context(), number-1, Batch{
		Publisher: "p", Number: 1, Duplicates: RejectDuplicates, Calls: [][]Message{{after(newer, 60)}},
	})
	require.NoError(t, err)
	status, err := topic.Cancel(t.Context(), "k0")
	require.NoError(t, err)
	assert.Equal(t, newer, status.ID, "the one published last")
	require.ErrorIs(t, errOf(topic.Cancel(t.Context(), "k0")), ErrNotFound, "both are taken back")
}

// TestTheStatusNamesTheCurrentGroups, not those that the process knew before.
func TestTheStatusNamesTheCurrentGroups(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.pushMany(1)
	r.push(due(keyed(1, "k1")), due(keyed(2, "k2")))
	r.claim(g, "c", 2)
	require.NoError(t, errOf(r.change(cancelBy("key", "k1"))))
	r.group("late")
	status, err := r.change(cancelBy("key", "k2"))
	require.NoError(t, err)
	assert.Equal(t, map[string]State{"g": StateInDelivery, "late": StateDone}, status.Groups)
}

func TestConcurrentCancelsReadTheTopicListOnce(t *testing.T) {
	var mu sync.Mutex
	asked := 0
	client := redis.NewClient(redistest.Shared(t).Client(t).Options())
	t.Cleanup(func() { _ = client.Close() })
	store := NewStore(client, "test", observe.Observer{Called: func(c observe.Called) {
		mu.Lock()
		defer mu.Unlock()
		if c.Script == "enlist" {
			asked++
		}
	}})
	topic := store.Topic(t.Name() + newScene(t).partition.Topic())
	require.NoError(t, topic.again().EnsureListed(t.Context()))
	store.ForgetListing(topic.name)
	asked = 0
	for _, err := range together(100, func(key string) error { return errOf(topic.Cancel(t.Context(), key)) }) {
		require.ErrorIs(t, err, ErrNotFound)
	}
	assert.Equal(t, 1, asked)
}
