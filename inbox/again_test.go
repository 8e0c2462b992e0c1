package inbox

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/intake"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// TestARepeatedBatchIsSplitTheSameWay: a process dies that has stored a batch, and not ended it; the next one would split it otherwise.
func TestARepeatedBatchIsSplitTheSameWay(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 2000)
	limit := func(c *Config) { c.MaxMessageBytes = 1000 }
	for name, test := range map[string]struct {
		before, after func(*Config)
		change        func(s scene, first string)
		rejected      int64
	}{
		"more partitions":   {before: unchanged, after: func(c *Config) { c.Partitions = 4 }},
		"fewer bytes":       {before: unchanged, after: limit},
		"more bytes":        {before: limit, after: unchanged, rejected: 1},
		"an entry that was": {before: unchanged, after: unchanged, change: func(s scene, first string) { s.client.XDel(s.Context(), s.key("entries"), first) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			first := s.put(large)
			for range 20 {
				s.put("")
			}
			i := s.inbox(test.before)
			_, err := i.processBatch(t.Context(), s.next(i))
			require.NoError(t, err)
			require.EqualValues(t, 21-test.rejected, s.stored())
			s.ack()
			if test.change != nil {
				test.change(s, first)
			}
			s.put("behind")
			s.empties(s.inbox(test.after))
			assert.EqualValues(t, 1, s.stored(), "only what is behind")
			assert.Equal(t, test.rejected, s.rejected())
		})
	}
}

// TestARepeatedBatchRefusesTheSameDuplicate: a process dies with a batch that it has stored except for a duplicate, before entries are
// removed.
func TestARepeatedBatchRefusesTheSameDuplicate(t *testing.T) {
	t.Parallel()
	for name, removed := range map[string][]int{
		"none": nil, "the first": {0}, "the second": {1}, "the first two": {0, 1}, "the last": {3}, "the duplicate": {2},
		"all others": {0, 1, 3}, "all but the second": {0, 2, 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.put("", "key", "k", "delay_ms", "3600000")
			i := s.inbox()
			s.empties(i)
			ids := []string{s.put("first"), s.put("second"), s.put("duplicate", "key", "k"), s.put("last")}
			_, err := i.processBatch(t.Context(), s.next(i))
			require.NoError(t, err)
			for _, n := range removed {
				require.NoError(t, s.client.XDel(t.Context(), s.key("entries"), ids[n]).Err())
			}
			b, want := s.next(i), []string(nil)
			if !slices.Contains(removed, 2) {
				want = []string{ids[2]}
			}
			for range 2 { // the second one comes after a process has died again
				rejected, err := i.processBatch(t.Context(), b)
				require.NoError(t, err)
				var got []string
				for _, r := range rejected {
					got = append(got, r.Entry)
					assert.Equal(t, redisdelay.ErrDuplicateMessage.Error(), r.Reason)
				}
				assert.Equal(t, want, got)
			}
			assert.EqualValues(t, 4, s.stored())
		})
	}
}

// TestADuplicateIsRefusedAfterEntriesAreRemoved before a batch is stored: its number is that of the plan.
func TestADuplicateIsRefusedAfterEntriesAreRemoved(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.put("", "key", "k", "delay_ms", "3600000")
	i := s.inbox()
	s.empties(i)
	before := s.client.HGet(t.Context(), s.keyOf(0, script.Publishers), publisherName).Val()
	ids := []string{s.put("first"), s.put("second"), s.put("duplicate", "key", "k"), s.put("last")}
	_, err := i.processBatch(t.Context(), s.next(i)) // only the plan remains of it
	require.NoError(t, err)
	s.ack()
	require.NoError(t, s.client.HSet(t.Context(), s.keyOf(0, script.Publishers), publisherName, before).Err())
	held := queue.Message{ID: idOf(s.prefix, intake.Entry{ID: "1-1"}, script.Traits{Key: "k"}), Traits: script.Traits{Key: "k"}}
	_, err = i.store.Topic("t").Push(t.Context(), 0, queue.Batch{
		Publisher: "another", Number: 1, Duplicates: queue.ReplaceDuplicates, Calls: [][]queue.Message{{held}},
	})
	require.NoError(t, err)

	require.NoError(t, s.client.XDel(t.Context(), s.key("entries"), ids[0], ids[1]).Err())
	b := s.next(i)
	for range 2 {
		rejected, err := i.processBatch(t.Context(), b)
		require.NoError(t, err)
		require.Len(t, rejected, 1)
		assert.Equal(t, ids[2], rejected[0].Entry)
		assert.EqualValues(t, 2, s.stored(), "what holds the key, and the last")
	}
}

// panics is a Marshaler that cannot take some messages.
type panics struct{ redisdelay.DefaultMarshaler }

func (p panics) Marshal(topic string, msg *message.Message) ([]byte, error) {
	if string(msg.Payload) == "bad" {
		panic(context.DeadlineExceeded)
	}
	return p.DefaultMarshaler.Marshal(topic, msg)
}

// TestAPanicInTheMarshalerRefusesTheEntry, whatever the value of the panic is, and stops no other.
func TestAPanicInTheMarshalerRefusesTheEntry(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.put("")
	bad := s.put("bad")
	s.put("")
	var reported []error
	i := s.inbox(func(c *Config) {
		c.Marshaler = panics{}
		c.Observer.Published = func(e observe.Published) {
			if e.Err != nil {
				reported = append(reported, e.Err)
			}
		}
	})
	rejected, err := i.processBatch(t.Context(), s.next(i))
	require.NoError(t, err)
	assert.Equal(t, []intake.Rejection{{Entry: bad, Reason: "cannot encode: panic: context deadline exceeded"}}, rejected)
	require.Len(t, reported, 1)
	require.ErrorAs(t, reported[0], new(*redisdelay.PanicError))
	assert.EqualValues(t, 2, s.stored())
}

// TestARepeatedBatchKeepsItsPartitions: a process dies when it has stored messages in one partition of two.
func TestARepeatedBatchKeepsItsPartitions(t *testing.T) {
	t.Parallel()
	const n = 40
	s := newScene(t)
	for range n {
		s.put("")
	}
	i := s.inbox(func(c *Config) { c.Partitions = 2 })
	_, err := i.processBatch(t.Context(), s.next(i))
	require.NoError(t, err)
	rest := s.client.ZCard(t.Context(), s.keyOf(1, script.Scheduled)).Val()
	require.Positive(t, rest)
	require.Less(t, rest, int64(n))
	s.ack()
	s.forget(1)
	s.empties(s.inbox(func(c *Config) { c.Partitions = 4 }))
	assert.Equal(t, rest, s.stored())
	assert.Equal(t, rest, s.client.ZCard(t.Context(), s.keyOf(1, script.Scheduled)).Val())
}

// TestAMessageIsReportedOnce although its batch is processed again, because one of its partitions was unavailable.
func TestAMessageIsReportedOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	var calls atomic.Int32
	key := any(s.keyOf(1, script.Publishers))
	s.client.AddHook(redistest.Failing{Err: func(cmd redis.Cmder) error {
		if slices.Contains(cmd.Args(), key) && calls.Add(1) <= 2 {
			return io.ErrUnexpectedEOF
		}
		return nil
	}})
	for range 40 {
		s.put("")
	}
	s.put("", "no", "field")
	var stored, rejected atomic.Int64
	i := s.inbox(func(c *Config) {
		c.Partitions = 2
		c.Observer.Published = func(e observe.Published) {
			if e.Err != nil {
				rejected.Add(int64(e.Messages))
			} else {
				stored.Add(int64(e.Messages))
			}
		}
	})
	s.empties(i)
	assert.Greater(t, calls.Load(), int32(2), "the partition was away")
	assert.EqualValues(t, 40, s.stored())
	assert.Equal(t, []int64{40, 1}, []int64{stored.Load(), rejected.Load()})
}

// TestAnOutageLastsWhileAnotherProcessHasTheBatch, which it cannot store either.
func TestAnOutageLastsWhileAnotherProcessHasTheBatch(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.put("")
	key := any(s.keyOf(0, script.Publishers))
	var repaired atomic.Bool
	var failed, early, over [2]atomic.Int32
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for n := range 2 {
		client := redis.NewClient(redistest.Client(t).Options())
		defer client.Close() //nolint:errcheck // what it would tell is of no use
		client.AddHook(redistest.Failing{Err: func(cmd redis.Cmder) error {
			if repaired.Load() || !slices.Contains(cmd.Args(), key) {
				return nil
			}
			failed[n].Add(1)
			return io.ErrUnexpectedEOF
		}})
		i := s.inbox(func(c *Config) {
			c.Client, c.LeaseDuration = client, 100*time.Millisecond
			c.Observer.OutageEnded = func(observe.OutageEnded) {
				if !repaired.Load() {
					early[n].Add(1)
				}
				over[n].Add(1)
			}
		})
		running.Go(func() { assert.NoError(t, i.Run(ctx)) })
	}
	eventually := func(what string, counts *[2]atomic.Int32, atLeast int32) {
		both := func() bool { return min(counts[0].Load(), counts[1].Load()) >= atLeast }
		assert.Eventually(t, both, time.Minute, 5*time.Millisecond, what)
	}
	eventually("both have had the batch more than once", &failed, 3)
	assert.Zero(t, early[0].Load()+early[1].Load())
	repaired.Store(true)
	eventually("the outage is over for both", &over, 1)
	stop()
	running.Wait()
	assert.EqualValues(t, 1, s.stored())
}

// TestAnInboxThatLostWritesIsNotStuck: the partition has stored a later batch than the inbox's own node knows of.
func TestAnInboxThatLostWritesIsNotStuck(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	i := s.inbox()
	s.put("")
	b := s.next(i)
	later := fmt.Sprintf("%d %d %026d", b.Number+1e9, time.Now().UnixMilli(), 1)
	require.NoError(t, s.client.HSet(t.Context(), s.keyOf(0, script.Publishers), publisherName, later).Err())
	for range 2 { // the second one comes after a process has died
		_, err := i.processBatch(t.Context(), b)
		require.NoError(t, err)
		require.LessOrEqual(t, s.stored(), int64(1))
	}
	s.ack()
	s.put("behind")
	s.empties(i)
	assert.EqualValues(t, 1, s.stored())
}

// TestANewBatchIsNotMistakenForALostOne: the clock is behind the numbers, which begin again where they were.
func TestANewBatchIsNotMistakenForALostOne(t *testing.T) {
	t.Parallel()
	const batches = 5 // two of them may have the same number, rarely
	s := newScene(t)
	i := s.inbox()
	ahead := time.Now().Add(time.Hour).UnixMicro()
	for range batches {
		s.put("")
		require.NoError(t, s.client.HSet(t.Context(), s.key("reading"), "number", ahead, "first", "").Err())
		b := s.next(i)
		require.Greater(t, b.Number, ahead)
		_, err := i.processBatch(t.Context(), b)
		require.NoError(t, err)
		require.NoError(t, s.client.XDel(t.Context(), s.key("entries"), b.Entries[0].ID).Err())
	}
	assert.GreaterOrEqual(t, s.stored(), int64(batches-1))
}

// TestCustomEntryIDsDoNotMakeMessagesEarly: a program gave its entries ids of its own. Redis's own ids go on from there.
func TestCustomEntryIDsDoNotMakeMessagesEarly(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]int64{"microseconds": 1767225600000000, "seconds": 1767225600, "a counter": 1} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			now := s.client.Time(t.Context()).Val()
			hour, due := now.Add(time.Hour).UnixMilli(), now.Add(7*24*time.Hour).UnixMilli()
			for n := range int64(3) {
				s.addAs(fmt.Sprint(first+n, "-0"), "topic", "t", "delay_ms", fmt.Sprint(time.Hour.Milliseconds()))
			}
			s.put("", "due_ms", fmt.Sprint(due))
			s.empties(s.inbox())
			stored := s.scheduled(0)
			require.Len(t, stored, 4)
			for _, z := range stored[:3] {
				assert.GreaterOrEqual(t, int64(z.Score), hour)
				assert.Less(t, int64(z.Score), hour+60_000)
			}
			assert.Equal(t, due, int64(stored[3].Score))
		})
	}
}

// TestAStoppingProcessEndsItsStoredBatch, so that no other one has to find out.
func TestAStoppingProcessEndsItsStoredBatch(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.put("")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	require.NoError(t, s.inbox(func(c *Config) { c.Observer.Published = func(observe.Published) { stop() } }).Run(ctx))
	assert.EqualValues(t, 1, s.stored())
	// Redis may do it later than Run waits for it.
	assert.Eventually(t, func() bool { return s.waiting() == 0 }, time.Minute, 5*time.Millisecond)
}

// TestCancelWorksInAFullRedis: it may be what frees the memory. No call after the change can fail, and have it made again.
func TestCancelWorksInAFullRedis(t *testing.T) {
	s := newSceneWith(t, redistest.New(t, "--maxmemory-policy", "noeviction").Client(t))
	s.put("", "key", "k", "delay_ms", "3600000")
	i := s.inbox()
	s.empties(i)
	require.EqualValues(t, 1, s.stored())
	s.put("", "op", "cancel", "key", "k")
	require.NoError(t, s.client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	b := s.next(i)
	_, err := i.processBatch(t.Context(), b)
	require.NoError(t, err)
	assert.Zero(t, s.stored())
	assert.NotEqual(t, fmt.Sprint(b.Number), s.client.HGet(t.Context(), s.key("reading"), "planned").Val())
	_, err = i.intake.Plan(t.Context(), b.Number, "{}")
	require.NoError(t, err, "the topics may be in a Redis that has memory")
	s.empties(s.inbox())
}

// TestABatchThatFailsInAFullRedisIsStoredLater: push.lua remembers the failure, also of a process that died of it. The plan was made
// while there was memory.
func TestABatchThatFailsInAFullRedisIsStoredLater(t *testing.T) {
	s := newSceneWith(t, redistest.New(t, "--maxmemory-policy", "noeviction").Client(t))
	memory := func(bytes string) { require.NoError(t, s.client.ConfigSet(t.Context(), "maxmemory", bytes).Err()) }
	i := s.inbox()
	for range 20 {
		s.put("")
	}
	b := s.next(i)
	_, err := i.processBatch(t.Context(), b)
	require.NoError(t, err)
	s.ack()
	s.forget(0)
	died := queue.Batch{Publisher: publisherName, Number: b.Number, Duplicates: queue.RejectDuplicates, Calls: [][]queue.Message{
		{{ID: idOf(s.prefix, b.Entries[0], script.Traits{})}},
	}}

	memory("1")
	_, err = i.store.Topic("t").Push(t.Context(), 0, died)
	require.ErrorContains(t, err, "OOM")
	for range 3 {
		_, err = i.processBatch(t.Context(), b)
		require.ErrorContains(t, err, "OOM")
	}
	memory("0")
	s.empties(i)
	assert.EqualValues(t, 20, s.stored())
	assert.Zero(t, s.rejected())
	_, err = i.store.Topic("t").Push(t.Context(), 0, died)
	require.NoError(t, err, "a late copy finds the record")
	assert.EqualValues(t, 20, s.stored())
}

// TestServerErrorsDoNotRefuseAnEntry, but the error of a topic that the inbox may not access does.
func TestServerErrorsDoNotRefuseAnEntry(t *testing.T) {
	for text, want := range map[string]bool{
		"OOM command not allowed when used memory > 'maxmemory'.":                         false,
		"MISCONF Redis is configured to save RDB snapshots":                               false,
		"NOAUTH Authentication required.":                                                 false,
		"WRONGPASS invalid username-password pair or user is disabled.":                   false,
		"NOPERM this user has no permissions to run the 'evalsha' command":                false,
		"ERR The user executing the script can't run this command or subcommand":          false,
		"NOPERM No permissions to access a key":                                           true,
		"NOPERM this user has no permissions to access one of the keys used as arguments": true,
		"LOADING Redis is loading the dataset in memory":                                  false,
		"WRONGTYPE Operation against a key holding the wrong kind of value":               true,
	} {
		assert.Equal(t, want, isPermanent(fmt.Errorf("it fails: %w", script.NotStoredError(text))), text)
	}
	for _, err := range []error{
		&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}},
		x509.HostnameError{Certificate: &x509.Certificate{}},
		tls.RecordHeaderError{},
		redis.ErrClosed,
	} {
		assert.False(t, isPermanent(fmt.Errorf("it fails: %w", err)), "%T", err)
	}
}

// TestALateChangeDoesNotUndoLaterOnes: a process stops before it makes a change, while another makes it and continues.
func TestALateChangeDoesNotUndoLaterOnes(t *testing.T) {
	t.Parallel()
	hour := time.Hour.Milliseconds()
	publish := []string{"key", "k", "delay_ms", fmt.Sprint(hour)}
	cancel := []string{"op", "cancel", "key", "k"}
	reschedule := func(ms int64) []string { return []string{"op", "reschedule", "key", "k", "delay_ms", fmt.Sprint(ms)} }
	for name, test := range map[string]struct{ before, change, later []string }{
		"cancel of a message":     {publish, cancel, publish},
		"cancel of none":          {nil, cancel, publish},
		"reschedule of a message": {publish, reschedule(2 * hour), reschedule(3 * hour)},
		"reschedule of none":      {nil, reschedule(2 * hour), publish},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			late, other := s.inbox(), s.inbox()
			if test.before != nil {
				s.put("", test.before...)
				s.empties(other)
			}
			s.put("", test.change...)
			b := s.next(late)
			s.put("", test.later...)
			s.empties(other)
			want := s.scheduled(0)
			require.Len(t, want, 1)
			_, err := late.processBatch(t.Context(), b)
			require.NoError(t, err)
			assert.Equal(t, want, s.scheduled(0))
		})
	}
}

// TestCancelAndRescheduleAreAppliedOnce although a process dies before it has ended the batch, and another publisher takes the key
// meanwhile.
func TestCancelAndRescheduleAreAppliedOnce(t *testing.T) {
	t.Parallel()
	for _, before := range []string{"k", "other"} {
		t.Run("there was a message with the key "+before, func(t *testing.T) {
			s := newScene(t)
			i := s.inbox()
			s.put("", "key", before, "delay_ms", "3600000")
			s.empties(i)
			s.put("", "op", "cancel", "key", "k")
			_, err := i.processBatch(t.Context(), s.next(i))
			require.NoError(t, err)
			others := s.stored()
			traits := script.Traits{Key: "k"}
			_, err = i.store.Topic("t").Push(t.Context(), 0, queue.Batch{
				Publisher: "another", Number: 1, Duplicates: queue.RejectDuplicates, Calls: [][]queue.Message{
					{{ID: script.NewIDs().Next(time.Now(), traits), Traits: traits, Delay: time.Hour}},
				},
			})
			require.NoError(t, err)
			s.empties(i)
			assert.Equal(t, others+1, s.stored())
		})
	}
}

func TestCancelAndRescheduleOfAnUnknownTopicWriteNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.put("", "op", "cancel", "key", "k")
	s.put("", "op", "reschedule", "key", "k", "delay_ms", "1")
	s.empties(s.inbox())
	assert.Empty(t, s.client.Keys(t.Context(), "{"+s.prefix+":t:*").Val())
	assert.Zero(t, s.rejected())
}

// TestADueTimeDoesNotDependOnWhenABatchIsStored: else those of two batches may be in another order than their entries.
func TestADueTimeDoesNotDependOnWhenABatchIsStored(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	i := s.inbox()
	now := func() time.Time { return s.client.Time(t.Context()).Val() }
	due := now().Add(time.Hour).UnixMilli()
	add := func() { s.put("", "ordering_key", "c", "due_ms", fmt.Sprint(due)) }
	add()
	b := s.next(i)
	read := now()
	require.Eventually(t, func() bool { return now().Sub(read) > 50*time.Millisecond }, time.Minute, time.Millisecond)
	_, err := i.processBatch(t.Context(), b)
	require.NoError(t, err)
	add()
	s.empties(i)
	stored := s.scheduled(0)
	require.Len(t, stored, 2)
	for n, z := range stored {
		assert.EqualValues(t, due, z.Score, "%d", n)
	}
	assert.Equal(t, idOf(s.prefix, b.Entries[0], script.Traits{OrderingKey: "c"}), stored[0].Member)
}

// gathering counts calls. It holds the calls to open topics, and those to store messages, until enough of a kind wait at once.
type gathering struct {
	redistest.Hook
	opening, storing gate
	calls            atomic.Int64
}

func (g *gathering) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		g.calls.Add(1)
		switch text := fmt.Sprint(cmd.Args()...); {
		case strings.Contains(text, ":"+script.Publishers.Name()):
			g.storing.pass()
		case strings.Contains(text, ":"+script.PartitionCount.Name()):
			g.opening.pass()
		}
		return next(ctx, cmd)
	}
}

// gate is passed once atOnce callers wait at it, and from then on without a wait. It gives up after a minute.
type gate struct {
	waiting atomic.Int64
	once    sync.Once
	open    chan struct{}
	failed  atomic.Bool
}

func newGate() gate { return gate{open: make(chan struct{})} }

func (g *gate) pass() {
	if g.waiting.Add(1) == atOnce {
		g.once.Do(func() { close(g.open) })
	}
	select {
	case <-g.open:
	case <-time.After(time.Minute):
		g.failed.Store(true)
		g.once.Do(func() { close(g.open) })
	}
}

// TestManyTopicsAreOpenedAndStoredInParallel, because one after another takes too long if Redis is far away.
func TestManyTopicsAreOpenedAndStoredInParallel(t *testing.T) {
	t.Parallel()
	const topics = 200
	s := newScene(t)
	add := func() {
		for n := range topics {
			s.add("topic", fmt.Sprint(n), "expires_ms", "4102444800000", "partition_key", "p")
		}
	}
	add()
	client := redis.NewClient(redistest.Client(t).Options())
	defer client.Close() //nolint:errcheck // what it would tell is of no use
	hook := &gathering{opening: newGate(), storing: newGate()}
	client.AddHook(hook)
	i := s.inbox(func(c *Config) { c.Client, c.Partitions = client, 2 })
	b := s.next(i)
	require.Len(t, b.Entries, topics)
	process := func(b intake.Batch) {
		rejected, err := i.processBatch(t.Context(), b)
		require.NoError(t, err)
		require.Empty(t, rejected)
	}
	process(b)
	assert.False(t, hook.opening.failed.Load(), "topics are opened one after another")
	assert.False(t, hook.storing.failed.Load(), "topics are stored one after another")
	add()
	next, err := i.intake.Next(t.Context(), intake.Reader{Name: "next", Keep: 1, MaxBytes: 1 << 20}, b.Number)
	require.NoError(t, err)
	require.Len(t, next.Entries, topics)
	hook.calls.Store(0)
	process(next)
	assert.Less(t, hook.calls.Load(), int64(3*topics), "one call to look at a topic that is known, and one to store")
}

func TestARepeatedBatchReportsItsIgnoredDuplicates(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for _, payload := range []string{"first", "second"} {
		s.put(payload, "key", "k", "delay_ms", "3600000")
	}
	var reported []observe.Published
	i := s.inbox(func(c *Config) {
		c.OnDuplicate = redisdelay.IgnoreDuplicate
		c.Observer.Published = func(e observe.Published) {
			e.Took = 0
			reported = append(reported, e)
		}
	})
	b := s.next(i)
	for range 2 {
		rejected, err := i.processBatch(t.Context(), b)
		require.NoError(t, err)
		require.Empty(t, rejected)
	}
	event := observe.Published{Topic: "t", Messages: 2, Ignored: []string{"k"}}
	require.Equal(t, []observe.Published{event, event}, reported)
	require.EqualValues(t, 1, s.stored())
}

// TestARepeatedBatchLosesNoMessageOfAKey that it has twice: the record of the first time is gone.
func TestARepeatedBatchLosesNoMessageOfAKey(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for _, payload := range []string{"first", "second"} {
		s.put(payload, "key", "k", "delay_ms", "3600000")
	}
	i := s.inbox(func(c *Config) { c.OnDuplicate = redisdelay.ReplaceDuplicate })
	b := s.next(i)
	for range 2 {
		_, err := i.processBatch(t.Context(), b)
		require.NoError(t, err)
		require.EqualValues(t, 1, s.stored())
		s.forget(0)
	}
}

// TestALateReaderStoresNothing: a process stops while it has a batch, and another stores it and continues, also when the messages have
// been handled meanwhile.
func TestALateReaderStoresNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	i := s.inbox()
	process := func(b intake.Batch) error {
		_, err := i.processBatch(t.Context(), b)
		return err
	}
	s.put("")
	late, same := s.next(i), s.next(i)
	require.NoError(t, process(same))
	require.EqualValues(t, 1, s.stored())
	s.ack()
	require.NoError(t, process(late), "the batch is the last one: the record says that it is stored")
	assert.Zero(t, s.stored())
	s.put("")
	next, err := i.intake.Next(t.Context(), intake.Reader{Name: "other", Keep: 1, MaxBytes: 1 << 20}, same.Number)
	require.NoError(t, err)
	require.NoError(t, process(next))
	require.ErrorIs(t, process(late), intake.ErrEnded)
	pushing := &batchWork{Inbox: i, batch: late} // it has asked for the plan before
	pushing.add(plan{}, place{topic: "t"}, outcome{entry: late.Entries[0], message: queue.Message{ID: idOf(s.prefix, late.Entries[0], script.Traits{})}})
	require.ErrorIs(t, pushing.push(t.Context()), intake.ErrEnded)
	assert.EqualValues(t, 1, s.stored())
}
