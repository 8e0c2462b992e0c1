package queue

import "context"

// Membership is a consumer group in all partitions of a topic.
type Membership struct {
	topic *Topic
	group string
	known int // how many partitions know the group
}

// Membership returns a consumer group in the topic, for one goroutine. It does no I/O.
func (t *Topic) Membership(group string) *Membership {
	return &Membership{topic: t, group: group}
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
		if m.known > 0 { // a partition added since a retirement does not know of it, the first one does
			if err := m.Group(0).Register(ctx); err != nil {
				return 0, err
			}
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

// Limit limits the group.
func (m *Membership) Limit(ctx context.Context, l Limits) error {
	return m.topic.Limit(ctx, m.group, l)
}
