package redisdelay

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// DeadLetter is a message that a consumer group could not handle: it was not acked
// in MaxDeliveries deliveries, was lost with its consumers that many times, was given up by
// its handler (Delivery.Bury), cannot be decoded, or has lost its body.
type DeadLetter struct {
	ID       string    // as in Delivery
	BuriedAt time.Time // by Redis's clock
	Reason   string    // for people to read
	Body     []byte    // as it was published; nil if it is missing

	// Message is the decoded body, with the metadata that the last Nack kept; nil if it
	// cannot be decoded.
	Message *message.Message
}

// DeadLetters returns the dead letters of the subscriber's group, the oldest
// first, at most limit, which must be 1 to 1,000. They stay until they are
// requeued or discarded. It may be called after Close. The error is ErrEmptyTopic,
// ErrProtocolTooNew, *KeyTypeError, that of Redis, or says that the limit cannot be used.
func (s *Subscriber) DeadLetters(ctx context.Context, topic string, limit int) ([]DeadLetter, error) {
	if topic == "" {
		return nil, ErrEmptyTopic
	}
	if limit < 1 || limit > queue.MaxMessages {
		return nil, fmt.Errorf("redisdelay: dead letters of %q: limit is %d, want 1 to %d", topic, limit, queue.MaxMessages)
	}
	var mu sync.Mutex
	var buried []queue.DeadLetter // guarded by mu
	err := s.eachGroup(ctx, topic, func(ctx context.Context, g *queue.Group) error {
		some, err := g.DeadLetters(ctx, limit)
		mu.Lock()
		defer mu.Unlock()
		buried = append(buried, some...)
		return err
	})
	if err != nil {
		return nil, leave(err, "dead letters of %q", topic)
	}
	slices.SortFunc(buried, func(a, b queue.DeadLetter) int {
		return cmp.Or(a.BuriedAt.Compare(b.BuriedAt), cmp.Compare(a.ID, b.ID))
	})
	codec := codec{config: s.config, topic: topic}
	letters := make([]DeadLetter, min(limit, len(buried)))
	for i, b := range buried[:len(letters)] {
		letters[i] = codec.letter(b)
	}
	return letters, nil
}

// eachGroup calls do for the subscriber's group in each partition of a topic, all at once.
func (s *Subscriber) eachGroup(ctx context.Context, topic string, do func(ctx context.Context, g *queue.Group) error) error {
	return s.store.Topic(topic).Each(ctx, func(ctx context.Context, p *queue.Partition) error {
		return do(ctx, p.Group(s.config.ConsumerGroup))
	})
}

// RequeueDeadLetters makes dead letters of the subscriber's group due again and counts
// their deliveries from 1. A requeued message holds no key (SetKey); Cancel and Reschedule find
// it by the key that it had until another message takes that. It returns how many of
// the ids were dead letters, as far as is known with an error: ErrEmptyTopic,
// ErrProtocolTooNew, *KeyTypeError, or that of Redis. It may be called again, and after Close.
func (s *Subscriber) RequeueDeadLetters(ctx context.Context, topic string, ids ...string) (int, error) {
	return s.eachDeadLetter(ctx, topic, "requeue", ids, func(ctx context.Context, g *queue.Group, ids []string) ([]string, error) {
		return g.Requeue(ctx, 1<<50, ids)
	})
}

// DiscardDeadLetters removes dead letters of the subscriber's group for good. It returns
// how many of the ids were dead letters. Its errors are those of RequeueDeadLetters; it may
// be called again, and after Close, too.
func (s *Subscriber) DiscardDeadLetters(ctx context.Context, topic string, ids ...string) (int, error) {
	return s.eachDeadLetter(ctx, topic, "discard", ids, func(ctx context.Context, g *queue.Group, ids []string) ([]string, error) {
		return g.Discard(ctx, 1<<50, ids)
	})
}

// eachDeadLetter calls do for each partition. It returns how many of the ids were found.
func (s *Subscriber) eachDeadLetter(
	ctx context.Context, topic, verb string, ids []string,
	do func(ctx context.Context, g *queue.Group, ids []string) (missing []string, err error),
) (int, error) {
	if topic == "" {
		return 0, ErrEmptyTopic
	}
	ids = slices.Compact(slices.Sorted(slices.Values(ids))) // each counts once
	var found atomic.Int64
	err := s.eachGroup(ctx, topic, func(ctx context.Context, g *queue.Group) error {
		for some := range slices.Chunk(ids, queue.MaxMessages) {
			missing, err := do(ctx, g, some)
			if err != nil {
				return err
			}
			found.Add(int64(len(some) - len(missing)))
		}
		return nil
	})
	if err != nil {
		return int(found.Load()), leave(err, "%s dead letters of %q", verb, topic)
	}
	return int(found.Load()), nil
}
