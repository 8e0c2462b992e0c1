package intake_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/intake"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// scene is an inbox of a test's own.
type scene struct {
	*intake.Intake
	client redis.UniversalClient
	key    string
}

func newScene(t *testing.T) scene {
	t.Helper()
	return newSceneOn(t, redistest.Client(t))
}

func newSceneOn(t *testing.T, client redis.UniversalClient) scene {
	t.Helper()
	prefix := "test-" + watermill.NewShortUUID()
	c := script.NewClient(client, prefix, observe.Observer{})
	return scene{intake.New(c), client, "{" + prefix + ":inbox}:entries"}
}

func (s scene) add(t *testing.T, fields ...string) (id string) {
	t.Helper()
	id, err := s.client.XAdd(t.Context(), &redis.XAddArgs{Stream: s.key, Values: fields}).Result()
	require.NoError(t, err)
	return id
}

func (s scene) next(t *testing.T, reader string, ended int64, rejected ...intake.Rejection) intake.Batch {
	t.Helper()
	b, err := s.Next(t.Context(), intake.Reader{Name: reader, Lease: time.Minute, Keep: 10, MaxBytes: 5 << 20}, ended, rejected...)
	require.NoError(t, err)
	return b
}

// kept returns the only rejected entry.
func (s scene) kept(t *testing.T) intake.Entry {
	t.Helper()
	list, err := s.Rejected(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0]
}

func idsOf(b intake.Batch) (ids []string) {
	for _, e := range b.Entries {
		ids = append(ids, e.ID)
	}
	return ids
}

func TestABatchStaysTheSameUntilItHasEnded(t *testing.T) {
	s := newScene(t)
	ids := []string{s.add(t, "topic", "a"), s.add(t, "topic", "b", "payload", "\xff")}
	first := s.next(t, "one", 0)
	assert.Equal(t, ids, idsOf(first))
	assert.Equal(t, [][2]string{{"topic", "b"}, {"payload", "\xff"}}, first.Entries[1].Fields)
	third := s.add(t, "topic", "c")
	again := s.next(t, "one", 0)
	assert.Equal(t, first.Number, again.Number)
	assert.Equal(t, ids, idsOf(again))

	second := s.next(t, "one", first.Number)
	assert.Greater(t, second.Number, first.Number)
	assert.Equal(t, []string{third}, idsOf(second))
	assert.Equal(t, []string{third}, idsOf(s.next(t, "one", first.Number)), "it has ended")
	last := s.next(t, "one", second.Number)
	assert.Empty(t, last.Entries)
	assert.Negative(t, last.Wait)
	assert.Zero(t, s.client.XLen(t.Context(), s.key).Val())
}

func TestTheFirstPlanForABatchWins(t *testing.T) {
	s := newScene(t)
	_, err := s.Plan(t.Context(), 0, "x")
	require.ErrorIs(t, err, intake.ErrEnded, "there is none")
	plan := func(number int64, mine string) string {
		valid, err := s.Plan(t.Context(), number, mine)
		require.NoError(t, err)
		return valid
	}
	s.add(t, "topic", "a")
	b := s.next(t, "one", 0)
	assert.Empty(t, plan(b.Number, ""))
	assert.Equal(t, "x", plan(b.Number, "x"))
	assert.Equal(t, "x", plan(b.Number, "y"))
	assert.Equal(t, "x", plan(s.next(t, "one", 0).Number, ""))
	s.add(t, "topic", "b")
	after := s.next(t, "one", b.Number)
	assert.Empty(t, plan(after.Number, ""))
	assert.Equal(t, "z", plan(after.Number, "z"))
	for _, number := range []int64{b.Number, after.Number} {
		s.next(t, "one", after.Number)
		_, err = s.Plan(t.Context(), number, "late")
		require.ErrorIs(t, err, intake.ErrEnded)
	}
}

func TestAnotherReaderTakesOverABatchAfterItsLease(t *testing.T) {
	for name, change := range map[string]time.Duration{"it is over": -2 * time.Minute, "the clock was set back": time.Hour} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.add(t, "topic", "a")
			first := s.next(t, "one", 0)
			other := s.next(t, "two", 0)
			require.Empty(t, other.Entries)
			require.Positive(t, other.Wait)
			require.LessOrEqual(t, other.Wait, time.Minute)
			reading := strings.TrimSuffix(s.key, "entries") + "reading"
			require.NoError(t, s.client.HIncrBy(t.Context(), reading, "until", change.Milliseconds()).Err())
			other = s.next(t, "two", 0)
			require.Equal(t, idsOf(first), idsOf(other))
			assert.Equal(t, first.Number, other.Number)
			assert.Empty(t, s.next(t, "one", 0).Entries, "the other has it")
			assert.Negative(t, s.next(t, "one", first.Number).Wait, "but the process that has stored it can end it")
			assert.Negative(t, s.next(t, "two", other.Number).Wait)
		})
	}
}

func TestABatchIsBounded(t *testing.T) {
	s := newScene(t)
	for range 501 {
		s.add(t, "topic", "a")
	}
	first := s.next(t, "one", 0)
	require.Len(t, first.Entries, 500)
	second := s.next(t, "one", first.Number)
	require.Len(t, second.Entries, 1)
	large := string(make([]byte, 1<<20))
	for range 3 {
		s.add(t, "payload", large)
	}
	s.add(t, "payload", large+large+large)
	number := second.Number
	for _, want := range []int{1, 1, 1, 1} {
		b := s.next(t, "one", number)
		require.Len(t, b.Entries, want)
		number = b.Number
	}
}

func TestAnEntryThatChangesMessagesIsABatchByItself(t *testing.T) {
	s := newScene(t)
	ids := []string{s.add(t, "topic", "a"), s.add(t, "op", "cancel"), s.add(t, "op", "cancel"), s.add(t, "topic", "a")}
	number := int64(0)
	for _, id := range ids {
		b := s.next(t, "one", number)
		require.Equal(t, []string{id}, idsOf(b))
		number = b.Number
	}
}

func TestRefusedEntriesAreKeptWithTheReason(t *testing.T) {
	s := newScene(t)
	bad := s.add(t, "topics", "a")
	s.add(t, "topic", "a")
	b := s.next(t, "one", 0)
	b = s.next(t, "one", b.Number, intake.Rejection{Entry: bad, Reason: "no topic"}, intake.Rejection{Entry: "1-1", Reason: "is not in the batch"})
	require.Negative(t, b.Wait)
	kept := s.kept(t)
	assert.ElementsMatch(t, [][2]string{{"_entry", bad}, {"_reason", "no topic"}, {"topics", "a"}}, kept.Fields)
	glance, err := s.Glance(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 1, glance.Rejected)
	assert.Zero(t, glance.Length)
}

func TestAnEntryWithManyFieldsDoesNotBlockOthers(t *testing.T) {
	s := newScene(t)
	var fields []string
	for i := range 20_000 {
		fields = append(fields, fmt.Sprint(i), "")
	}
	bad := s.add(t, fields...)
	s.add(t, "topic", "a")
	b := s.next(t, "one", 0)
	require.Len(t, b.Entries, 2)
	require.Len(t, b.Entries[0].Fields, 20_000)
	require.Negative(t, s.next(t, "one", b.Number, intake.Rejection{Entry: bad, Reason: "many"}).Wait)
}

func TestBatchNumbersGrowEvenIfTheirRecordIsLost(t *testing.T) {
	s := newScene(t)
	s.add(t, "topic", "a")
	first := s.next(t, "one", 0)
	require.NoError(t, s.client.Del(t.Context(), strings.TrimSuffix(s.key, "entries")+"reading").Err())
	second := s.next(t, "two", 0)
	assert.Greater(t, second.Number, first.Number)
	assert.Equal(t, idsOf(first), idsOf(second))
}

func TestAnOversizedEntryIsReturnedAsItsSizeOnly(t *testing.T) {
	s := newScene(t)
	large := s.add(t, "payload", string(make([]byte, 32<<20)))
	s.add(t, "topic", "a")
	b := s.next(t, "one", 0)
	for range 2 { // also when it is read again
		require.Equal(t, []intake.Entry{{ID: large, Fields: [][2]string{}, Bytes: 32<<20 + len("payload")}}, b.Entries)
		b = s.next(t, "one", 0)
	}
	b = s.next(t, "one", b.Number, intake.Rejection{Entry: large, Reason: "large"})
	require.Len(t, b.Entries, 1)
	assert.Equal(t, [][2]string{{"topic", "a"}}, b.Entries[0].Fields)
}

func TestALargeRefusedEntryIsTruncated(t *testing.T) {
	s := newScene(t)
	fields := []string{"payload", strings.Repeat("x", 1<<20), strings.Repeat("n", 5000), "value"}
	for i := range 500 {
		fields = append(fields, fmt.Sprint("meta.", i), strings.Repeat("y", 2000))
	}
	size := len(strings.Join(fields, ""))
	bad := s.add(t, fields...)
	b := s.next(t, "one", 0)
	s.next(t, "one", b.Number, intake.Rejection{Entry: bad, Reason: "large"})
	kept := s.kept(t)
	assert.Contains(t, kept.Fields, [2]string{"_bytes", fmt.Sprint(size)})
	assert.Contains(t, kept.Fields, [2]string{"payload", strings.Repeat("x", 1024)})
	assert.Contains(t, kept.Fields, [2]string{strings.Repeat("n", 1024), "value"})
	total := 0
	for _, f := range kept.Fields {
		total += len(f[0]) + len(f[1])
	}
	assert.Less(t, total, 66_000)
}

// TestARefusedEntryWithOmittedFieldsRecordsItsSize even if it is small: a program that adds it again would lose the other
// fields.
func TestARefusedEntryWithOmittedFieldsRecordsItsSize(t *testing.T) {
	for n, cut := range map[int]bool{1000: false, 1001: true} {
		s := newScene(t)
		var fields []string
		for i := range n {
			fields = append(fields, fmt.Sprint("meta.", i), "x")
		}
		size := len(strings.Join(fields, ""))
		bad := s.add(t, fields...)
		b := s.next(t, "one", 0)
		s.next(t, "one", b.Number, intake.Rejection{Entry: bad, Reason: "many"})
		kept := s.kept(t)
		want := 1000 + len([]string{"_entry", "_reason"})
		if cut {
			want++
			assert.Contains(t, kept.Fields, [2]string{"_bytes", fmt.Sprint(size)})
		}
		assert.Len(t, kept.Fields, want)
	}
}

// TestABatchReadsNoLargeEntriesThatDoNotFit measures Redis's memory during the call, which shows what was read.
func TestABatchReadsNoLargeEntriesThatDoNotFit(t *testing.T) {
	s := newSceneOn(t, redistest.New(t).Client(t))
	memory := func(field string) int {
		info, err := s.client.InfoMap(t.Context(), "memory").Result()
		require.NoError(t, err)
		bytes, err := strconv.Atoi(info["Memory"][field])
		require.NoError(t, err)
		return bytes
	}
	for range 30 {
		s.add(t, "payload", string(make([]byte, 2<<20)))
	}
	before := memory("used_memory")
	require.Len(t, s.next(t, "one", 0).Entries, 1)
	assert.Less(t, memory("used_memory_peak")-before, 40<<20)
}

// replies records the largest number of entries in a reply of XRANGE and XREVRANGE.
type replies struct {
	redistest.Hook
	most int
}

func (r *replies) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if entries, is := cmd.(*redis.XMessageSliceCmd); is {
			r.most = max(r.most, len(entries.Val()))
		}
		return err
	}
}

func TestEntriesAreReadInPages(t *testing.T) {
	replies := &replies{}
	client := redistest.Client(t)
	client.AddHook(replies)
	s := newSceneOn(t, client)
	rejected := strings.TrimSuffix(s.key, "entries") + "rejected"
	var ids []string
	for n := range 250 {
		ids = append(ids, fmt.Sprintf("1-%d", n+1))
		for _, key := range []string{s.key, rejected} {
			require.NoError(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: key, ID: ids[n], Values: []string{"f", "v"}}).Err())
		}
	}
	waiting, err := s.Waiting(t.Context(), 25)
	require.NoError(t, err)
	assert.Equal(t, ids[:25], idsOf(intake.Batch{Entries: waiting}))
	assert.Equal(t, 10, replies.most)
	waiting, err = s.Waiting(t.Context(), 1000)
	require.NoError(t, err)
	assert.Equal(t, ids, idsOf(intake.Batch{Entries: waiting}))

	list, err := s.Rejected(t.Context(), 205)
	require.NoError(t, err)
	got := idsOf(intake.Batch{Entries: list})
	slices.Reverse(got)
	assert.Equal(t, ids[45:], got)
	assert.Equal(t, 100, replies.most)
}

func TestALargePageEndsTheListOfEntries(t *testing.T) {
	s := newScene(t)
	for range 12 {
		s.add(t, "payload", strings.Repeat("x", 1<<20))
	}
	waiting, err := s.Waiting(t.Context(), 1000)
	require.NoError(t, err)
	assert.Equal(t, 10, len(waiting), "those of one page, which have more than 8 MiB")
}
