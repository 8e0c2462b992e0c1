package redisdelay

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/internal/publish"
)

// encode returns the messages to store.
func (p *Publisher) encode(topic string, messages []*message.Message) (encoded []publish.Message, err error) {
	defer recovered(&err)
	now := time.Now()
	encoded = make([]publish.Message, len(messages))
	for i, msg := range messages {
		encoded[i], err = p.encodeOne(topic, msg, now)
		if err != nil {
			return nil, fmt.Errorf("message %q: %w", msg.UUID, err)
		}
	}
	return encoded, nil
}

func (p *Publisher) encodeOne(topic string, msg *message.Message, now time.Time) (publish.Message, error) {
	remaining, err := pendingHeaders(msg.Metadata).remaining(now)
	if err != nil {
		return publish.Message{}, err
	}
	key, err := keyOf(msg)
	if err != nil {
		return publish.Message{}, err
	}
	body, err := p.config.Marshaler.Marshal(topic, withMadeDelay(msg))
	if err != nil {
		return publish.Message{}, fmt.Errorf("marshal: %w", err)
	}
	if len(body) > p.config.MaxMessageBytes {
		return publish.Message{}, fmt.Errorf("%w: %d bytes, limit %d", ErrMessageTooLarge, len(body), p.config.MaxMessageBytes)
	}
	m := publish.Message{Name: msg.UUID, Key: key, Delay: remaining, Body: body}
	if key == "" && p.config.PartitionKey != nil {
		m.PartitionKey = p.config.PartitionKey(topic, msg)
	}
	return m, nil
}

// withMadeDelay is a message to store. A delay that the handler or a middleware has given to the
// delivered message, such as DelayOnError inside a poison queue, is marked, and so told apart from
// one that a publisher gave. It delays all the same: only what was published is marked.
func withMadeDelay(msg *message.Message) *message.Message {
	after := pendingHeaders(msg.Metadata).after
	if _, again := publishedAgain(msg); !again || after == "" {
		return msg
	}
	marked := msg.CopyWithContext()
	marked.Metadata.Set(delay.DelayedForKey, markMade(after))
	return marked
}

// contextOf returns a context that ends when the context of any of the messages does. If
// they share one, as the messages of a call mostly do, it returns that one.
func contextOf(messages []*message.Message) (ctx context.Context, stop func()) {
	if len(messages) == 0 {
		return context.Background(), func() {}
	}
	first := callerOf(messages[0].Context())
	if len(messages) == 1 {
		return first, func() {}
	}
	last, stops := first.Done(), []func() bool{}
	ctx, cancel := first, func(error) {}
	for _, msg := range messages[1:] {
		other := callerOf(msg.Context())
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

// callerOf is the context to publish under: the message's own, or, if that has ended, that of
// its delivery. While the consumer holds the message, an ended context on it is a
// middleware's, not the caller's.
func callerOf(ctx context.Context) context.Context {
	if ctx.Err() != nil {
		if d, delivered := DeliveryFromContext(ctx); delivered {
			return d.held
		}
	}
	return ctx
}
