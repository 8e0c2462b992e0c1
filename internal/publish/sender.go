package publish

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// Sender stores the messages of Publish calls in the partitions of their topics. It
// is safe for concurrent use.
type Sender struct {
	topics  *Topics
	batcher *Batcher
	turn    atomic.Uint64 // of the partitions, for messages without a key
}

// NewSender returns a Sender.
func NewSender(topics *Topics, batcher *Batcher) *Sender {
	return &Sender{topics: topics, batcher: batcher}
}

// share is what goes to one partition.
type share struct {
	partition int
	indexes   []int // of the messages in the call; nil: all of them
	messages  []queue.Message
}

// Send stores messages. Those with the same key, unless it is empty, go to one
// partition, in their order; those without all to another, calls taking turns. With
// no keys at all, keys may be nil. What goes to one partition, MaxMessages and
// MaxBytes at most, is stored whole or not at all.
func (s *Sender) Send(
	ctx context.Context, deadline time.Time, topic string, messages []queue.Message, keys []string,
) error {
	if len(messages) == 0 {
		return nil
	}
	partitions, err := s.topics.Partitions(ctx, deadline, topic)
	if err != nil {
		return fmt.Errorf("not stored: %w", err)
	}
	shares := s.spread(messages, keys, partitions)
	if len(shares) == 1 {
		stored, err := s.store(ctx, deadline, topic, shares[0])
		if err == nil {
			return nil
		}
		return outcome(shares, []int{stored}, []error{err})
	}
	stored, errs := make([]int, len(shares)), make([]error, len(shares))
	var storing sync.WaitGroup
	for i := range shares {
		storing.Go(func() { stored[i], errs[i] = s.store(ctx, deadline, topic, shares[i]) })
	}
	storing.Wait()
	return outcome(shares, stored, errs)
}

func (s *Sender) spread(messages []queue.Message, keys []string, partitions int) []share {
	turn := int(s.turn.Add(1) % uint64(partitions))
	if keys == nil || partitions == 1 {
		return []share{{partition: turn, messages: messages}}
	}
	var shares []share
	for i, m := range messages {
		partition := turn
		if keys[i] != "" {
			partition = pick(keys[i], partitions)
		}
		at := slices.IndexFunc(shares, func(s share) bool { return s.partition == partition })
		if at < 0 {
			at = len(shares)
			shares = append(shares, share{partition: partition})
		}
		shares[at].indexes = append(shares[at].indexes, i)
		shares[at].messages = append(shares[at].messages, m)
	}
	return shares
}

// pick chooses the partition of a key. With more partitions, a key stays where it is
// or goes to a new one (jump consistent hash, Lamping and Veach).
func pick(key string, partitions int) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // never fails
	state, chosen, next := h.Sum64(), int64(-1), int64(0)
	for next < int64(partitions) {
		chosen = next
		state = state*2862933555777941757 + 1
		next = int64(float64(chosen+1) * (float64(1<<31) / float64(state>>33+1)))
	}
	return int(chosen)
}

// store stores a share, in parts if it is large, and returns how many of its messages
// are stored.
func (s *Sender) store(ctx context.Context, deadline time.Time, topic string, sh share) (stored int, err error) {
	for _, part := range Split(sh.messages) {
		failed := s.batcher.Publish(ctx, deadline, Destination{Topic: topic, Partition: sh.partition}, part)
		if err == nil {
			err = failed
		}
		if shortfall := (*queue.ReplicationError)(nil); failed != nil && !errors.As(failed, &shortfall) {
			return stored, failed
		}
		stored += len(part)
	}
	return stored, err
}

// outcome sums up what has become of a call.
func outcome(shares []share, stored []int, errs []error) error {
	err := errors.Join(errs...)
	switch {
	case err == nil:
		return nil
	case len(errs) == 1:
		err = errs[0]
	}
	partial := PartialError{Err: err}
	for i, sh := range shares {
		partial.Stored += stored[i]
		partial.Total += len(sh.messages)
		for n := stored[i]; n < len(sh.messages); n++ {
			if sh.indexes == nil {
				partial.Missing = append(partial.Missing, n)
			} else {
				partial.Missing = append(partial.Missing, sh.indexes[n])
			}
		}
	}
	if partial.Stored == 0 || len(partial.Missing) == 0 {
		return partial.Err
	}
	slices.Sort(partial.Missing)
	return &partial
}

// PartialError says that a part of a call's messages is stored.
type PartialError struct {
	Stored  int // of the Total messages
	Total   int
	Missing []int // indexes of those not stored or, with ErrOutcomeUnknown, perhaps not
	Err     error
}

func (e *PartialError) Error() string {
	return fmt.Sprintf("only %d of %d messages are stored: %v", e.Stored, e.Total, e.Err)
}

func (e *PartialError) Unwrap() error { return e.Err }
