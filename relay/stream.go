package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/internal/delivery"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

var errNoFields = errors.New("the marshaller has returned no fields")

// unfitError says that a message can never be published.
type unfitError struct{ error }

func (e *unfitError) Unwrap() error { return e.error }

// group is a consumer group that can move messages to a stream. See queue.Group.
type group interface {
	CanRelay(stream string) bool
	Relay(ctx context.Context, stream queue.Stream, entries []queue.Entry) (queue.Relayed, error)
}

// toStream moves messages to the stream of the topic in one step if possible, and publishes them otherwise. It acks the
// messages that are in the stream.
func (rt *route) toStream(messages []*message.Message) error {
	var errs []error
	for len(messages) > 0 {
		first := batchMessage(messages[0])
		n := 1
		for n < len(messages) && batchMessage(messages[n]).Partition() == first.Partition() {
			n++
		}
		send := rt.publish
		_, otherSlot := rt.relay.otherSlot.Load(rt.topic)
		if g, ok := first.Group().(group); ok && !otherSlot && g.CanRelay(rt.topic) {
			send = func(messages []*message.Message) error { return rt.move(g, messages) }
		}
		if err := send(messages[:n]); err != nil {
			errs = append(errs, err)
		}
		messages = messages[n:]
	}
	return errors.Join(errs...)
}

func batchMessage(msg *message.Message) delivery.BatchMessage {
	h, _ := delivery.BatchMessageOf(msg.Context()) // SubscribeBatches put it there
	return h
}

// expired reports whether a message has expired since the subscription handed it out.
func expired(msg *message.Message) bool {
	h, is := delivery.BatchMessageOf(msg.Context())
	return is && h.Expired()
}

// move moves messages of one partition to the stream. If another consumer has claimed a message since, that consumer
// moves it, and the ack of this relay is stale, too.
func (rt *route) move(g group, messages []*message.Message) error {
	config := rt.relay.config.Streams
	var entries []queue.Entry
	var errs []error
	moving := make([]*message.Message, 0, len(messages))
	for _, msg := range messages {
		entry, err := rt.entry(msg)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		entries, moving = append(entries, entry), append(moving, msg)
	}
	maxlen, found := config.Maxlens[rt.topic]
	if !found {
		maxlen = config.DefaultMaxlen
	}
	for _, msg := range moving {
		batchMessage(msg).BeginSettle()
	}
	relayed, err := g.Relay(rt.detached, queue.Stream{Key: rt.topic, MaxLen: maxlen}, entries)
	if errors.Is(err, queue.ErrOtherSlot) {
		rt.relay.otherSlot.Store(rt.topic, true)
		rt.relay.logger.Info("The stream is in another slot of Redis than the messages; they are published at least once",
			watermill.LogFields{"topic": rt.topic})
		return errors.Join(append(errs, rt.publish(moving))...)
	}
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, msg := range moving {
		held := batchMessage(msg)
		if id := held.Delivery().ID; slices.Contains(relayed.Stale, id) {
			rt.relay.logger.Debug("The relay no longer holds a message: it was moved before, or another consumer has claimed it",
				watermill.LogFields{"topic": rt.topic, "id": id})
		} else {
			held.Settled(relayed.Room)
		}
		msg.Ack()
	}
	return errors.Join(errs...)
}

// entry encodes a message as redisstream does.
func (rt *route) entry(msg *message.Message) (queue.Entry, error) {
	values, err := rt.relay.config.Streams.Marshaller.Marshal(rt.topic, rt.copyOf(msg))
	if err != nil {
		return queue.Entry{}, err
	}
	held := batchMessage(msg)
	entry := queue.Entry{Delivery: held.Delivery(), Size: held.Size()}
	for field, value := range values {
		entry.Values = append(entry.Values, field, value)
	}
	return entry, nil
}

// marshaller turns the errors of a Marshaller into an unfitError, also when a message is published.
type marshaller struct{ redisstream.Marshaller }

func (m marshaller) Marshal(topic string, msg *message.Message) (map[string]any, error) {
	values, err := m.marshal(topic, msg)
	if err == nil && len(values) == 0 {
		err = errNoFields
	}
	if err != nil {
		return nil, &unfitError{fmt.Errorf("marshal for the stream: %w", err)}
	}
	return values, nil
}

func (m marshaller) marshal(topic string, msg *message.Message) (values map[string]any, err error) {
	defer recovered(&err)
	return m.Marshaller.Marshal(topic, msg)
}
