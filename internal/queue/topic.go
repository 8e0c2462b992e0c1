package queue

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// MaxPartitions is the most partitions that a topic can have: each costs every
// subscription a connection and a poll.
const MaxPartitions = 256

// Topic is a topic with all its partitions. How many there are is kept in Redis.
// It is safe for concurrent use.
type Topic struct {
	// immutable
	store *Store
	name  string

	listed atomic.Bool // with a version that is understood

	mu         sync.Mutex
	partitions []*Partition // guarded by mu; those that were asked for, and all before them
	known      int          // guarded by mu; how many partitions know all groups
}

// Silence says what is known of a call that has not ended in time.
func (t *Topic) Silence() error { return t.store.Silence() }

// Partition returns one of the partitions, from 0.
func (t *Topic) Partition(number int) *Partition {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n := len(t.partitions); n <= number; n++ {
		t.partitions = append(t.partitions, newPartition(t.store, t.name, n))
	}
	return t.partitions[number]
}

// Partitions returns how many partitions there are. It changes nothing in Redis.
func (t *Topic) Partitions(ctx context.Context) (int, error) {
	if err := t.understand(ctx); err != nil {
		return 0, err
	}
	number, _, err := t.raise(ctx, 1, 0)
	return number, err
}

// Raise makes sure that there are at least so many partitions, all known to all
// groups of the topic, and returns how many there are. Others may have raised the
// number higher; it never sinks, not even if Redis has lost it since the last call.
//
// The number comes first and then the groups: a group that is registered meanwhile
// either sees the number and is registered in all partitions by its subscriber, or
// was in the first partition before, where it is found here.
func (t *Topic) Raise(ctx context.Context, least int) (int, error) {
	t.mu.Lock()
	known := t.known
	t.mu.Unlock()
	number, groups, err := t.raise(ctx, max(least, known), known)
	if err != nil || number == known {
		return number, err
	}
	if err := t.copyGroups(ctx, groups, known, number); err != nil {
		return 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known = max(t.known, number)
	return t.known, nil
}

// raise raises the number of partitions and returns it, with the groups of the first one
// if it is not the number known; 0 asks for no groups. It comes before all else that is
// done with a topic, so it checks the server.
func (t *Topic) raise(ctx context.Context, least, known int) (number int, groups []string, err error) {
	first := t.Partition(0)
	keys := raiseScript.keys(first.names, "", nil)
	if err := t.store.check(ctx, keys[0]); err != nil {
		return 0, nil, err
	}
	reply, err := first.run(ctx, raiseScript, keys, []any{least, known, first.channel()})
	if err != nil {
		return 0, nil, err
	}
	if len(reply) == 0 {
		return 0, nil, fmt.Errorf("%w: empty", errReply)
	}
	n, ok := reply[0].(int64)
	if !ok || n < 1 || n > MaxPartitions {
		return 0, nil, fmt.Errorf("%w: %v partitions", errReply, reply[0])
	}
	groups, err = stringsOf(reply[1:])
	return int(n), groups, err
}

// copyGroups registers groups in some partitions.
func (t *Topic) copyGroups(ctx context.Context, list []string, from, to int) error {
	if len(list) == 0 {
		return nil
	}
	_, err := t.store.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for n := from; n < to; n++ {
			pipe.SAdd(ctx, t.Partition(n).names.key(groups), anys(list)...)
		}
		return nil
	})
	for n := from; err != nil && n < to; n++ {
		p := t.Partition(n)
		err = t.store.explain(ctx, p.call(registerScript, []string{p.names.key(groups)}, nil), err)
	}
	return err
}
