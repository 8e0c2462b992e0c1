package queue

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"
)

// MaxPartitions is the most partitions that a topic can have: each costs every
// subscription a connection and a poll.
const MaxPartitions = 256

// Topic is a topic with all its partitions. How many there are is kept in Redis.
// It is safe for concurrent use.
type Topic struct {
	// immutable
	client *Client
	prefix string
	name   string

	mu         sync.Mutex
	partitions []*Queue // guarded by mu; those that were asked for, and all before them
	number     int      // guarded by mu; of partitions that all groups are known in
}

// NewTopic returns a topic. It does no I/O.
func NewTopic(client *Client, prefix, name string) *Topic {
	return &Topic{client: client, prefix: prefix, name: name, number: 1}
}

// Silence says what is known of a call that has not ended in time.
func (t *Topic) Silence() error { return t.client.Silence() }

// Partition returns one of the partitions, from 0.
func (t *Topic) Partition(number int) *Queue {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n := len(t.partitions); n <= number; n++ {
		t.partitions = append(t.partitions, New(t.client, t.prefix, t.name, n))
	}
	return t.partitions[number]
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
	known := t.number
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
	t.number = max(t.number, number)
	return t.number, nil
}

// Count returns how many partitions there are.
func (t *Topic) Count(ctx context.Context) (int, error) {
	number, _, err := t.raise(ctx, 1, 0)
	return number, err
}

// raise raises the number of partitions and returns it, with the groups of the first one
// if it is not the number known; 0 asks for no groups. It comes before all else that is
// done with a topic, so it checks the server.
func (t *Topic) raise(ctx context.Context, least, known int) (number int, groups []string, err error) {
	first := t.Partition(0).part
	keys := []string{first.count(), first.groups()}
	if err := t.client.check(ctx, keys[0]); err != nil {
		return 0, nil, err
	}
	reply, err := run(ctx, t.client, first, raiseScript, keys, []any{least, known, t.client.channel(first)})
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
func (t *Topic) copyGroups(ctx context.Context, groups []string, from, to int) error {
	if len(groups) == 0 {
		return nil
	}
	_, err := t.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for n := from; n < to; n++ {
			pipe.SAdd(ctx, t.Partition(n).part.groups(), anys(groups)...)
		}
		return nil
	})
	for n := from; err != nil && n < to; n++ {
		part := t.Partition(n).part
		err = explain(ctx, t.client, part, []string{part.groups()}, err)
	}
	return err
}

// Membership is a consumer group's part in all partitions of a topic.
type Membership struct {
	topic *Topic
	group string
	known int // how many partitions know the group
}

// Membership returns a consumer group's part in the topic. It does no I/O and is for
// one goroutine.
func (t *Topic) Membership(group string) *Membership {
	return &Membership{topic: t, group: group}
}

// Partitions makes the group known in all partitions, so that it gets what falls
// due from now on, and returns how many there are.
func (m *Membership) Partitions(ctx context.Context) (int, error) {
	for {
		number, _, err := m.topic.raise(ctx, max(m.known, 1), 0)
		if err != nil || number == m.known {
			return number, err
		}
		for ; m.known < number; m.known++ {
			if err := m.topic.Partition(m.known).Group(m.group).Register(ctx); err != nil {
				return 0, err
			}
		}
	}
}

// Group returns the group in one of the partitions.
func (m *Membership) Group(partition int) *Group {
	return m.topic.Partition(partition).Group(m.group)
}
