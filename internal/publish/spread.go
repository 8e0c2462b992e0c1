package publish

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// share is the messages of a call that go to one partition.
type share struct {
	partition int
	indexes   []int // of the messages in the call; nil: all of them
	messages  []queue.Message
}

// store stores the messages of a call in the partitions of their topic.
func (p *Publisher) store(ctx context.Context, deadline time.Time, topic string, messages []Message) error {
	list := p.withIDs(messages)
	leaveTrail(ctx, list)
	partitions, err := p.topics.partitions(ctx, deadline, topic)
	if err != nil {
		return fmt.Errorf("not stored: %w", err)
	}
	if err := p.lanes.begin(); err != nil {
		return err
	}
	defer p.lanes.calls.Done()
	shares := p.spread(messages, list, partitions)
	if len(shares) == 1 {
		stored, err := p.storeShare(ctx, deadline, topic, shares[0])
		if err == nil {
			return nil
		}
		return outcome(shares, []int{stored}, []error{err})
	}
	stored, errs := make([]int, len(shares)), make([]error, len(shares))
	var storing sync.WaitGroup
	for i := range shares {
		storing.Go(func() { stored[i], errs[i] = p.storeShare(ctx, deadline, topic, shares[i]) })
	}
	storing.Wait()
	return outcome(shares, stored, errs)
}

// withIDs gives messages ids, which sort in publishing order.
func (p *Publisher) withIDs(messages []Message) []queue.Message {
	now := time.Now()
	list := make([]queue.Message, len(messages))
	for i, m := range messages {
		list[i] = queue.Message{
			ID: p.ids.Next(now, m.Key), Key: m.Key, Delay: m.Delay, Body: m.Body, Name: m.Name,
		}
	}
	return list
}

// spread chooses partitions for messages. list has the same messages, with ids.
func (p *Publisher) spread(messages []Message, list []queue.Message, partitions int) []share {
	turn := int(p.turn.Add(1) % uint64(partitions))
	if partitions == 1 || !slices.ContainsFunc(messages, func(m Message) bool { return m.chooser() != "" }) {
		return []share{{partition: turn, messages: list}}
	}
	var shares []share
	for i, m := range messages {
		partition := turn
		if key := m.chooser(); key != "" {
			partition = queue.PartitionOf(key, partitions)
		}
		at := slices.IndexFunc(shares, func(s share) bool { return s.partition == partition })
		if at < 0 {
			at = len(shares)
			shares = append(shares, share{partition: partition})
		}
		shares[at].indexes = append(shares[at].indexes, i)
		shares[at].messages = append(shares[at].messages, list[i])
	}
	return shares
}

// chooser is the key that chooses a message's partition. The message key comes first:
// duplicates must meet in one partition.
func (m *Message) chooser() string {
	if m.Key != "" {
		return m.Key
	}
	return m.PartitionKey
}

// storeShare stores a share, in pieces if it is large, and returns how many of its
// messages are stored.
func (p *Publisher) storeShare(ctx context.Context, deadline time.Time, topic string, s share) (count int, err error) {
	for _, piece := range split(s.messages) {
		failed := p.lanes.store(ctx, deadline, destination{topic: topic, partition: s.partition}, piece)
		if err == nil {
			err = failed
		}
		if !stored(failed) {
			return count, failed
		}
		count += len(piece)
	}
	return count, err
}

// split cuts messages into pieces that fit a batch.
func split(messages []queue.Message) [][]queue.Message {
	var pieces [][]queue.Message
	start, bytes := 0, 0
	for i, m := range messages {
		bytes += len(m.Body)
		if i > start && (i-start == maxMessages || bytes > maxBytes) {
			pieces = append(pieces, messages[start:i])
			start, bytes = i, len(m.Body)
		}
	}
	if start < len(messages) {
		pieces = append(pieces, messages[start:])
	}
	return pieces
}
