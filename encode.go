package redisdelay

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// encode returns the messages to store and the keys that choose their partitions, nil
// if none has one.
func (p *Publisher) encode(
	topic string, messages []*message.Message,
) (encoded []queue.Message, keys []string, err error) {
	defer recovered(&err)
	now := time.Now()
	encoded = make([]queue.Message, len(messages))
	for i, msg := range messages {
		m, err := p.encodeOne(topic, msg, now)
		if err != nil {
			return nil, nil, fmt.Errorf("message %q: %w", msg.UUID, err)
		}
		encoded[i] = m
		if key := p.partitionKey(topic, msg, m.Key); key != "" {
			if keys == nil {
				keys = make([]string, len(messages))
			}
			keys[i] = key
		}
	}
	for i := range encoded { // none is used up by a call that fails
		encoded[i].ID = p.ids.Next(now, encoded[i].Key)
	}
	return encoded, keys, nil
}

// encodeOne encodes a message, which has no ID yet.
func (p *Publisher) encodeOne(topic string, msg *message.Message, now time.Time) (queue.Message, error) {
	remaining, err := pendingHeaders(msg.Metadata).remaining(now)
	if err != nil {
		return queue.Message{}, err
	}
	key, keyed := msg.Metadata[KeyMetadata]
	if delivery, _ := DeliveryFromContext(msg.Context()); keyed && key != "" && key == delivery.key && msg.UUID == delivery.uuid {
		key, keyed = "", false
	}
	if keyed {
		if err := validateKey(key); err != nil {
			return queue.Message{}, err
		}
	}
	body, err := p.config.Marshaler.Marshal(topic, msg)
	if err != nil {
		return queue.Message{}, fmt.Errorf("marshal: %w", err)
	}
	if len(body) > p.config.MaxMessageBytes {
		return queue.Message{}, fmt.Errorf("%w: %d bytes, limit %d", ErrMessageTooLarge, len(body), p.config.MaxMessageBytes)
	}
	return queue.Message{Key: key, Delay: remaining, Body: body, Name: msg.UUID}, nil
}

// partitionKey is what chooses a message's partition. A message key goes first: all
// messages with it must meet.
func (p *Publisher) partitionKey(topic string, msg *message.Message, key string) string {
	if key == "" && p.config.PartitionKey != nil {
		return p.config.PartitionKey(topic, msg)
	}
	return key
}

// contextOf ends when the context of any of the messages does. Those of one call tend
// to share one, which then is the result.
func contextOf(messages []*message.Message) (ctx context.Context, stop func()) {
	if len(messages) == 0 {
		return context.Background(), func() {}
	}
	first := contextFor(messages[0])
	last, stops := first.Done(), []func() bool{}
	ctx, cancel := first, func(error) {}
	for _, msg := range messages[1:] {
		other := contextFor(msg)
		if other.Done() == last {
			continue
		}
		last = other.Done()
		if len(stops) == 0 {
			ctx, cancel = context.WithCancelCause(first)
		}
		if other.Err() != nil {
			cancel(context.Cause(other))
		}
		stops = append(stops, context.AfterFunc(other, func() { cancel(context.Cause(other)) }))
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
	}
}

// contextFor is the context that a message is published under: its own, or, if that has
// ended, that of its delivery. As long as the consumer holds the message, it is a middleware
// that has put a context on it and ended it, and not the caller.
func contextFor(msg *message.Message) context.Context {
	ctx := msg.Context()
	if ctx.Err() != nil {
		if d, delivered := DeliveryFromContext(ctx); delivered {
			return d.held
		}
	}
	return ctx
}
