package publish

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

func TestKeysStayOrGoToANewPartition(t *testing.T) {
	const keys = 10_000
	for partitions := 1; partitions < 30; partitions++ {
		counts := make([]int, partitions+1)
		for n := range keys {
			key := fmt.Sprint("order-", n)
			before, after := pick(key, partitions), pick(key, partitions+1)
			counts[after]++
			if after != before {
				require.Equal(t, partitions, after, "%s moved between old partitions", key)
			}
		}
		for p, n := range counts {
			even := keys / (partitions + 1)
			require.InDelta(t, even, n, float64(even)/4+50, "keys of partition %d of %d", p, partitions+1)
		}
	}
}

// recorder is a Store that notes what goes where.
type recorder struct {
	mu   sync.Mutex
	ids  map[int][]string // guarded by mu; by partition
	fail func(partition int) error
}

func (r *recorder) store(_ context.Context, to Destination, b queue.Batch) ([]queue.Duplicate, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.fail(to.Partition); err != nil {
		return nil, err
	}
	for _, call := range b.Calls {
		for _, m := range call {
			r.ids[to.Partition] = append(r.ids[to.Partition], m.ID)
		}
	}
	return nil, nil
}

// newSender returns a Sender to a topic that is known to have so many partitions.
func newSender(partitions int, fail func(partition int) error) (*Sender, *recorder) {
	r := &recorder{ids: map[int][]string{}, fail: fail}
	topics := NewTopics(func(string) *queue.Topic { return nil }, 1, NewCalls(), quietly())
	known := topics.find("t")
	known.partitions, known.seenAt = partitions, far
	return NewSender(topics, New(r.store, queue.Batch{}, func() string { return "p" }, quietly())), r
}

// far is a time at which a topic counts as looked at just now, for as long as a test
// runs.
var far = time.Now().Add(time.Hour)

var errRefused = queue.Refusal("OOM command not allowed")

func none(int) error { return nil }

// outgoing is what a Publish call sends.
type outgoing struct {
	messages []queue.Message
	keys     []string
}

func (o *outgoing) add(key string, ids ...string) {
	for _, id := range ids {
		o.messages = append(o.messages, queue.Message{ID: id})
		o.keys = append(o.keys, key)
	}
}

func (s *Sender) send(t *testing.T, o outgoing) error {
	t.Helper()
	return s.Send(t.Context(), far, "t", o.messages, o.keys)
}

func TestCallsWithoutKeysTakeTurnsAndStayWhole(t *testing.T) {
	s, r := newSender(4, none)
	for n := range 8 {
		var call outgoing
		call.add("", fmt.Sprint(n, "a"), fmt.Sprint(n, "b"))
		if n%2 == 0 {
			call.keys = nil
		}
		require.NoError(t, s.send(t, call))
	}
	for p := range 4 {
		require.Len(t, r.ids[p], 4, "partition %d", p)
		assert.Equal(t, r.ids[p][0][:1]+"b", r.ids[p][1], "a call stays together")
	}
}

func TestMessagesGoWhereTheirKeysDoInOrder(t *testing.T) {
	s, r := newSender(4, none)
	var call outgoing
	for n := range 100 {
		call.add(fmt.Sprint(n%10), fmt.Sprintf("%d/%02d", n%10, n))
	}
	require.NoError(t, s.send(t, call))
	last, total := map[string]string{}, 0
	for p, ids := range r.ids {
		for _, id := range ids {
			key := id[:1]
			assert.Equal(t, pick(key, 4), p)
			assert.Less(t, last[key], id)
			last[key] = id
		}
		total += len(ids)
	}
	assert.Equal(t, 100, total)
}

func TestAPartialErrorNamesWhatIsMissing(t *testing.T) {
	bad := pick("bad", 4)
	s, r := newSender(4, func(p int) error {
		if p == bad {
			return errRefused
		}
		return nil
	})
	good := "good"
	for n := 0; pick(good, 4) == bad; n++ {
		good = fmt.Sprint("good", n)
	}
	var call outgoing
	call.add(good, "0")
	call.add("bad", "1", "2")
	call.add(good, "3")
	err := s.send(t, call)
	var partial *PartialError
	require.ErrorAs(t, err, &partial)
	require.ErrorIs(t, err, errRefused)
	assert.Equal(t, 2, partial.Stored)
	assert.Equal(t, 4, partial.Total)
	assert.Equal(t, []int{1, 2}, partial.Missing)
	assert.Equal(t, []string{"0", "3"}, r.ids[pick(good, 4)])

	var last outgoing
	last.add("bad", "4")
	err = s.send(t, last)
	require.ErrorIs(t, err, errRefused)
	assert.NotErrorAs(t, err, &partial, "nothing is stored")
}

func TestTooFewReplicasIsNoReasonToStop(t *testing.T) {
	shortfall := &queue.ReplicationError{Want: 1}
	s, r := newSender(1, none)
	s.batcher.store = func(ctx context.Context, to Destination, b queue.Batch) ([]queue.Duplicate, error) {
		_, _ = r.store(ctx, to, b)
		return nil, shortfall
	}
	var call outgoing
	for n := range MaxMessages + 1 {
		call.add("", fmt.Sprint(n))
	}
	require.Equal(t, error(shortfall), s.send(t, call), "all are stored, so it is not partial")
	assert.Len(t, r.ids[0], MaxMessages+1)
}
