package redisdelay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// maxChangedMetadata limits the metadata that a Nack keeps for the next delivery.
const maxChangedMetadata = 1 << 20

// codec turns claimed messages of a topic into Watermill messages and back.
type codec struct {
	config SubscriberConfig
	topic  string
	group  string // not of config: with Broadcast, each subscription has its own
}

var (
	errNilFromUnmarshaler = errors.New("unmarshaler returned nil")
	errMetadataTooLarge   = errors.New("metadata is too large to keep for the next delivery")
)

// decode returns the message to hand out. Its context is ctx with a Delivery.
func (c codec) decode(ctx context.Context, claimed queue.Claimed) (*message.Message, error) {
	msg, lastError, err := c.delivered(claimed)
	if err != nil {
		return nil, err
	}
	leasedAt := claimed.LeasedUntil.Add(-c.config.LeaseDuration.Truncate(time.Millisecond))
	msg.SetContext(context.WithValue(ctx, deliveryKey{}, Delivery{
		Topic:         c.topic,
		Group:         c.group,
		ID:            claimed.ID,
		Attempt:       claimed.Attempt,
		MaxDeliveries: c.config.MaxDeliveries,
		Token:         claimed.Fence,
		DueAt:         claimed.DueAt,
		LeasedUntil:   claimed.LeasedUntil,
		LastError:     lastError,
		due:           claimed.ArrivedAt.Add(claimed.DueAt.Sub(leasedAt)),
		held:          ctx,
		key:           msg.Metadata.Get(KeyMetadata),
		uuid:          msg.UUID,
		handling:      &handling{claimed: claimed, msg: msg},
	}))
	return msg, nil
}

// delivered is a message as its handler gets it, and the error that a Nack has kept. Its delay is
// over: what a Nack has kept was made while the message was handled, what is in the body comes from
// the publisher.
func (c codec) delivered(claimed queue.Claimed) (msg *message.Message, lastError string, err error) {
	msg, err = c.unmarshal(claimed.Body, claimed.Metadata)
	if err != nil {
		return nil, "", err
	}
	mark := markPublished
	if len(claimed.Metadata) > 0 {
		mark = markMade
		lastError = takeLastError(msg.Metadata)
	}
	honour(msg.Metadata, mark)
	return msg, lastError, nil
}

// unmarshal decodes a message, with the metadata that a Nack kept, if any.
func (c codec) unmarshal(body, metadata []byte) (msg *message.Message, err error) {
	defer recovered(&err)
	msg, err = c.config.Unmarshaler.Unmarshal(c.topic, body)
	if err != nil {
		return nil, err
	}
	if msg == nil {
		return nil, errNilFromUnmarshaler
	}
	if msg.Acked() == nil { // made without NewMessage, so nothing can wait for its Ack
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

// redelivery returns what the handler has decided about a nacked message, else when it is
// due again and, if a middleware has given it a delay, its new metadata. The payload stays as
// published, even if a handler has changed it. ctx is the context that the message was
// handed out with: a middleware may have replaced the one in the message.
func (c codec) redelivery(ctx context.Context, msg *message.Message) (nack queue.Nack, err error) {
	delivered, _ := DeliveryFromContext(ctx)
	if made := delivered.decided(); made != nil {
		nack, err = c.carryOut(delivered, made, msg.Metadata)
	} else {
		nack, err = c.retry(delivered, msg.Metadata)
	}
	nack.Error = delivered.recorded()
	return nack, err
}

// retry returns the nack of a message about which nothing was decided.
func (c codec) retry(delivered Delivery, metadata message.Metadata) (nack queue.Nack, err error) {
	headers := pendingHeaders(metadata)
	remaining, err := headers.remaining(time.Now())
	if err != nil || headers == (delayHeaders{}) {
		delay, failed := c.nackDelay(delivered.Attempt)
		remaining = delay
		nack.Metadata, err = c.sameMetadata(delivered, errors.Join(err, failed))
	} else {
		nack.Metadata, err = c.changed(delivered.withLastError(metadata))
	}
	nack.Delay = max(remaining, MinRedeliveryDelay)
	return nack, err
}

// sameMetadata is the metadata as delivered, with a new error; nil if there is none to keep.
func (c codec) sameMetadata(delivered Delivery, before error) ([]byte, error) {
	if text := delivered.recorded(); text == "" || text == delivered.LastError {
		return nil, before
	}
	was, known := c.metadataOf(delivered)
	if !known {
		return nil, before
	}
	encoded, err := c.changed(delivered.withLastError(was))
	return encoded, errors.Join(before, err)
}

func (c codec) changed(metadata message.Metadata) ([]byte, error) {
	encoded, err := encodeMetadata(metadata)
	if len(metadata) == 0 {
		encoded = emptyMetadata() // nothing would keep the old
	}
	if err != nil || len(encoded) <= maxChangedMetadata {
		return encoded, err
	}
	return nil, fmt.Errorf("%w: %d bytes, limit %d", errMetadataTooLarge, len(encoded), maxChangedMetadata)
}

// nackDelay is the delay after a delivery; with an error, it is the default delay.
func (c codec) nackDelay(attempt int) (delay time.Duration, err error) {
	delay = defaultNackDelay(attempt)
	defer recovered(&err)
	return c.config.NackDelay(attempt), nil
}
