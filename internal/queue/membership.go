package queue

import (
	"context"
	"time"
)

// Membership is a consumer group in all partitions of a topic.
type Membership struct {
	topic *Topic
	group string
	lasts time.Duration
	known int // how many partitions know the group
}

// Membership returns a consumer group in the topic, for one goroutine. It does no I/O. The
// group expires after lasting so long without a live consumer; 0: it lasts for ever.
func (t *Topic) Membership(group string, lasts time.Duration) *Membership {
	return &Membership{topic: t, group: group, lasts: lasts}
}

// Partitions lists the topic, registers the group in all partitions, so it gets what
// falls due from now on, and returns how many partitions there are.
func (m *Membership) Partitions(ctx context.Context) (int, error) {
	if err := m.topic.Enlist(ctx); err != nil {
		return 0, err
	}
	for {
		number, _, err := m.topic.raise(ctx, max(m.known, 1), 0)
		if err != nil || number == m.known {
			return number, err
		}
		for ; m.known < number; m.known++ {
			if err := m.Group(m.known).Register(ctx); err != nil {
				return 0, err
			}
		}
	}
}

// EndExpired ends groups of the topic; see Topic.EndExpired.
func (m *Membership) EndExpired(ctx context.Context) ([]Ended, error) {
	return m.topic.EndExpired(ctx)
}

// Group returns the group in one of the partitions.
func (m *Membership) Group(partition int) *Group {
	g := m.topic.Partition(partition).Group(m.group)
	g.lasts = m.lasts
	return g
}

// Limit limits the group.
func (m *Membership) Limit(ctx context.Context, l Limits) error {
	return m.topic.Limit(ctx, m.group, l)
}
