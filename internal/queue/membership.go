package queue

import (
	"context"
	"time"
)

// Terms are what a subscriber asks for its consumer group.
type Terms struct {
	Expiry time.Duration // without a live consumer; 0: for ever
	Limits Limits        // none: the group keeps those that it has
}

// Membership is a consumer group in all partitions of a topic.
type Membership struct {
	topic *Topic
	group string
	terms Terms
	known int // how many partitions know the group
}

// Membership returns a consumer group in the topic, for one goroutine. It does no I/O.
func (t *Topic) Membership(group string, terms Terms) *Membership {
	return &Membership{topic: t, group: group, terms: terms}
}

// Partitions lists the topic, registers the group in all partitions, so it gets what
// falls due from now on, and returns how many partitions there are. The first call limits
// the group.
func (m *Membership) Partitions(ctx context.Context) (int, error) {
	if err := m.enlist(ctx); err != nil {
		return 0, err
	}
	first := m.known == 0
	for {
		number, _, err := m.topic.raise(ctx, max(m.known, 1), 0)
		if err == nil && first {
			err = m.terms.Limits.fits(number)
		}
		if err == nil && number == m.known && first && m.terms.Limits != (Limits{}) {
			err = m.topic.limit(ctx, m.group, m.terms.Limits)
		}
		if err != nil || number == m.known {
			return number, err
		}
		if m.known > 0 { // a partition added since a retirement does not know of it, the first one does
			if err := m.Group(0).Register(ctx); err != nil {
				return 0, err
			}
		}
		for ; m.known < number; m.known++ {
			if err := m.Group(m.known).Register(ctx); err != nil {
				return 0, err
			}
		}
	}
}

func (m *Membership) enlist(ctx context.Context) error {
	if m.terms != (Terms{}) {
		return m.topic.Advance(ctx)
	}
	return m.topic.Enlist(ctx)
}

// EndExpired ends groups of the topic; see Topic.EndExpired.
func (m *Membership) EndExpired(ctx context.Context) ([]Ended, error) {
	return m.topic.endExpired(ctx, m.group)
}

// Group returns the group in one of the partitions.
func (m *Membership) Group(partition int) *Group {
	g := m.topic.Partition(partition).Group(m.group)
	g.topic, g.terms = m.topic, m.terms
	return g
}
