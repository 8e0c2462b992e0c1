package redisdelay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// maxChangedMetadata bounds the metadata that a Nack keeps for the next delivery.
const maxChangedMetadata = 1 << 20

// Delivery describes one delivery of a message.
type Delivery struct {
	// ID is the message's id in Redis. It is unique, unlike the UUID, sorts in the
	// order of publishing, and is the same in every delivery and group.
	ID string

	// Attempt is which delivery to a handler of the group this is, from 1, as far as Redis
	// knows: it is not told of a handler whose process dies before the next heartbeat, so
	// that a number may come twice. What was only held ahead does not count. A dead
	// letter that is requeued starts again at 1.
	Attempt int

	// Token grows each time that the group is given the message, also when a dead letter
	// is requeued, and no two deliveries have the same. Pass it on as a fencing token:
	// who keeps the highest that it has seen can refuse the work of a consumer that has
	// lost the message without noticing.
	Token int64

	// DueAt is when this delivery was due, in whole milliseconds of Redis's clock:
	// after a Nack, the time that it set; after a lease ran out, its end.
	DueAt time.Time

	// LeasedUntil is when the lease ends, by Redis's clock, if the consumer goes
	// silent at once. While it lives, it extends the lease.
	LeasedUntil time.Time

	held context.Context // ends when the consumer no longer holds the message
	key  string          // message key as delivered
	uuid string          // the message's UUID as delivered
}

type deliveryKey struct{}

// DeliveryFromContext returns the delivery that a message context belongs to,
// and whether there is one: a Subscriber of this package delivered the message.
func DeliveryFromContext(ctx context.Context) (Delivery, bool) {
	d, ok := ctx.Value(deliveryKey{}).(Delivery)
	return d, ok
}

// codec turns claimed messages of a topic into Watermill's and back.
type codec struct {
	config SubscriberConfig
	topic  string
	logger watermill.LoggerAdapter
}

var (
	errNilFromUnmarshaler = errors.New("unmarshaler returned nil")
	errMetadataTooLarge   = errors.New("metadata are too large to be kept for the next delivery")
)

// decode makes the message to hand out. Its context is ctx with a Delivery.
func (c codec) decode(ctx context.Context, claimed queue.Claimed) (*message.Message, error) {
	msg, err := c.unmarshal(claimed.Body, claimed.Metadata)
	if panicked := (*PanicError)(nil); errors.As(err, &panicked) {
		c.logger.Error("The unmarshaler panicked", err, watermill.LogFields{"id": claimed.ID, "stack": string(panicked.Stack)})
	}
	if err != nil {
		return nil, err
	}
	honour(msg.Metadata)
	msg.SetContext(context.WithValue(ctx, deliveryKey{}, Delivery{
		ID:          claimed.ID,
		Attempt:     claimed.Attempt,
		Token:       claimed.Fence,
		DueAt:       claimed.DueAt,
		LeasedUntil: claimed.LeasedUntil,
		held:        ctx,
		key:         msg.Metadata.Get(KeyMetadata),
		uuid:        msg.UUID,
	}))
	return msg, nil
}

// unmarshal decodes a message, with the metadata that a Nack has left, if any.
func (c codec) unmarshal(body, metadata []byte) (msg *message.Message, err error) {
	defer recovered(&err)
	msg, err = c.config.Unmarshaler.Unmarshal(c.topic, body)
	if err != nil {
		return nil, err
	}
	if msg == nil {
		return nil, errNilFromUnmarshaler
	}
	if msg.Acked() == nil { // made without NewMessage: could not be waited for
		msg = msg.Copy()
	}
	if msg.Metadata == nil {
		msg.Metadata = message.Metadata{}
	}
	if len(metadata) > 0 {
		clear(msg.Metadata)
		if err := decodeMetadata(metadata, msg.Metadata); err != nil {
			return nil, fmt.Errorf("metadata: %w", err)
		}
	}
	return msg, nil
}

// redelivery says when a nacked message is due again and, if a middleware has given it a
// delay, with which metadata. Its payload stays as it was published, whatever a handler
// has done to it. ctx is the context it was handed out with: a middleware may have
// replaced the one in the message.
func (c codec) redelivery(ctx context.Context, msg *message.Message) (nack queue.Nack, err error) {
	delivered, _ := DeliveryFromContext(ctx)
	headers := pendingHeaders(msg.Metadata)
	remaining, err := headers.remaining(time.Now())
	if err != nil || headers == (delayHeaders{}) {
		delay, failed := c.nackDelay(delivered.Attempt)
		remaining, err = delay, errors.Join(err, failed)
	} else {
		nack.Metadata, err = c.changed(msg.Metadata)
	}
	nack.Delay = max(remaining, MinRedeliveryDelay)
	return nack, err
}

func (c codec) changed(metadata message.Metadata) ([]byte, error) {
	encoded, err := encodeMetadata(metadata)
	if err != nil || len(encoded) <= maxChangedMetadata {
		return encoded, err
	}
	return nil, fmt.Errorf("%w: %d bytes, limit %d", errMetadataTooLarge, len(encoded), maxChangedMetadata)
}

// nackDelay is the delay after a delivery; the default one, if there is an error.
func (c codec) nackDelay(attempt int) (delay time.Duration, err error) {
	delay = defaultNackDelay(attempt)
	defer recovered(&err)
	return c.config.NackDelay(attempt), nil
}

// letter is a dead letter as far as it can be read.
func (c codec) letter(b queue.DeadLetter) DeadLetter {
	letter := DeadLetter{ID: b.ID, BuriedAt: b.BuriedAt, Reason: b.Reason, Body: b.Body}
	if msg, err := c.unmarshal(bytes.Clone(b.Body), b.Metadata); err == nil {
		letter.Message = msg
	}
	return letter
}
