package redisdelay

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// DeadLetter is a message that a consumer group could not handle: it was not acked
// in MaxDeliveries deliveries, cannot be decoded, or has lost its body.
type DeadLetter struct {
	ID       string    // as in Delivery
	BuriedAt time.Time // by Redis's clock
	Reason   string    // for people to read
	Body     []byte    // as stored; nil if it is missing

	// Message is the decoded body, nil if that fails.
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
	buried, err := s.group(topic).DeadLetters(ctx, limit)
	if err != nil {
		return nil, fmt.Errorf("redisdelay: dead letters of %q: %w", topic, err)
	}
	letters := make([]DeadLetter, len(buried))
	for i, b := range buried {
		letters[i] = DeadLetter{ID: b.ID, BuriedAt: b.BuriedAt, Reason: b.Reason, Body: b.Body}
		if msg, err := s.config.Unmarshaler.Unmarshal(topic, b.Body); err == nil {
			letters[i].Message = msg
		}
	}
	return letters, nil
}

// RequeueDeadLetters makes dead letters of the subscriber's group due again, their
// deliveries counted anew. It returns how many of the ids were dead letters.
func (s *Subscriber) RequeueDeadLetters(ctx context.Context, topic string, ids ...string) (int, error) {
	return s.eachDeadLetter(topic, "requeue", ids, func(part []string) ([]string, error) {
		return s.group(topic).Requeue(ctx, part)
	})
}

// DiscardDeadLetters removes dead letters of the subscriber's group for good. It
// returns how many of the ids were dead letters.
func (s *Subscriber) DiscardDeadLetters(ctx context.Context, topic string, ids ...string) (int, error) {
	return s.eachDeadLetter(topic, "discard", ids, func(part []string) ([]string, error) {
		return s.group(topic).Discard(ctx, part)
	})
}

func (s *Subscriber) eachDeadLetter(topic, verb string, ids []string, do func([]string) ([]string, error)) (int, error) {
	if topic == "" {
		return 0, ErrEmptyTopic
	}
	done := 0
	for len(ids) > 0 {
		n := min(len(ids), queue.MaxMessages)
		missing, err := do(ids[:n])
		if err != nil {
			return done, fmt.Errorf("redisdelay: %s dead letters of %q: %w", verb, topic, err)
		}
		done += n - len(missing)
		ids = ids[n:]
	}
	return done, nil
}
