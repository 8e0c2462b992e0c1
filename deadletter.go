package redisdelay

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// DeadLetter is a message that a consumer group could not handle: it was not acked
// in MaxDeliveries deliveries, was lost with its consumers as often, cannot be decoded,
// or has lost its body.
type DeadLetter struct {
	ID       string    // as in Delivery
	BuriedAt time.Time // by Redis's clock
	Reason   string    // for people to read
	Body     []byte    // as it was published; nil if it is missing

	// Message is the decoded body, with the metadata that the last Nack has kept; nil if
	// that fails.
	Message *message.Message
}

// DeadLetters returns the dead letters of the subscriber's group, the oldest
// first, at most limit, which must be 1 to 1,000. They stay until they are
// requeued or discarded. It may be called after Close.
func (s *Subscriber) DeadLetters(ctx context.Context, topic string, limit int) ([]DeadLetter, error) {
	if topic == "" {
		return nil, ErrEmptyTopic
	}
	if limit < 1 || limit > queue.MaxMessages {
		return nil, fmt.Errorf("redisdelay: dead letters of %q: limit is %d, want 1 to %d", topic, limit, queue.MaxMessages)
	}
	var buried []queue.DeadLetter
	err := s.eachPartition(ctx, topic, func(g *queue.Group) error {
		some, err := g.DeadLetters(ctx, limit)
		buried = append(buried, some...)
		return err
	})
	if err != nil {
		return nil, leave(err, "dead letters of %q", topic)
	}
	slices.SortStableFunc(buried, func(a, b queue.DeadLetter) int { return a.BuriedAt.Compare(b.BuriedAt) })
	codec := codec{config: s.config, topic: topic}
	letters := make([]DeadLetter, min(limit, len(buried)))
	for i, b := range buried[:len(letters)] {
		letters[i] = codec.letter(b)
	}
	return letters, nil
}

// eachPartition calls do for the subscriber's group in each partition of a topic.
func (s *Subscriber) eachPartition(ctx context.Context, topic string, do func(g *queue.Group) error) error {
	t := queue.NewTopic(s.client, s.config.Prefix, topic)
	partitions, err := t.Count(ctx)
	if err != nil {
		return err
	}
	for n := range partitions {
		if err := do(t.Partition(n).Group(s.config.ConsumerGroup)); err != nil {
			return err
		}
	}
	return nil
}

// RequeueDeadLetters makes dead letters of the subscriber's group due again, their
// deliveries counted anew. It returns how many of the ids were dead letters.
func (s *Subscriber) RequeueDeadLetters(ctx context.Context, topic string, ids ...string) (int, error) {
	return s.eachDeadLetter(ctx, topic, "requeue", ids, func(g *queue.Group, part []string) ([]string, error) {
		return g.Requeue(ctx, part)
	})
}

// DiscardDeadLetters removes dead letters of the subscriber's group for good. It
// returns how many of the ids were dead letters.
func (s *Subscriber) DiscardDeadLetters(ctx context.Context, topic string, ids ...string) (int, error) {
	return s.eachDeadLetter(ctx, topic, "discard", ids, func(g *queue.Group, part []string) ([]string, error) {
		return g.Discard(ctx, part)
	})
}

// eachDeadLetter calls do, which returns the ids it has not found, for each partition
// until all are found.
func (s *Subscriber) eachDeadLetter(
	ctx context.Context, topic, verb string, ids []string, do func(g *queue.Group, part []string) ([]string, error),
) (int, error) {
	if topic == "" {
		return 0, ErrEmptyTopic
	}
	left, done := ids, 0
	err := s.eachPartition(ctx, topic, func(g *queue.Group) error {
		var missing []string
		for part := range slices.Chunk(left, queue.MaxMessages) {
			some, err := do(g, part)
			if err != nil {
				return err
			}
			done += len(part) - len(some)
			missing = append(missing, some...)
		}
		left = missing
		return nil
	})
	if err != nil {
		return done, leave(err, "%s dead letters of %q", verb, topic)
	}
	return done, nil
}
