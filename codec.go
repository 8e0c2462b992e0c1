package redisdelay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/internal/delays"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// maxChangedMetadata limits the metadata that a Nack keeps for the next delivery.
const maxChangedMetadata = 1 << 20

// codec turns claimed messages of a topic into Watermill messages and back.
type codec struct {
	config *SubscriberConfig
	topic  string
	group  string // not of config: with Broadcast, each subscription has its own
}

var (
	errNilFromUnmarshaler = errors.New("unmarshaler returned nil")
	errMetadataTooLarge   = errors.New("metadata is too large to keep for the next delivery")
)

// decode returns the message to hand out, and when it expires. Its context is ctx with a Delivery.
func (c *codec) decode(ctx context.Context, claimed queue.Claimed) (msg *message.Message, expiresAt time.Time, err error) {
	msg, lastError, err := c.decodeMessage(claimed)
	if err != nil {
		return nil, time.Time{}, err
	}
	if expiresAt, err = Expiration(msg); err != nil {
		return nil, time.Time{}, err
	}
	msg.SetContext(context.WithValue(ctx, deliveryKey{}, Delivery{
		Topic:         c.topic,
		Group:         c.group,
		ID:            claimed.ID,
		Attempt:       claimed.Attempt,
		MaxDeliveries: c.config.MaxDeliveries,
		Token:         claimed.Token,
		DueAt:         claimed.DueAt,
		LeasedUntil:   claimed.LeasedUntil,
		LastError:     lastError,
		due:           claimed.ArrivedAt.Add(claimed.DueAt.Sub(claimed.AnsweredAt)),
		held:          ctx,
		key:           msg.Metadata.Get(KeyMetadata),
		expiration:    msg.Metadata.Get(ExpirationMetadata),
		uuid:          msg.UUID,
		handling:      &handling{claimed: claimed, msg: msg},
	}))
	return msg, expiresAt, nil
}

// decodeMessage returns a message as its handler gets it, and the error that a Nack has kept. Its delay is
// over: what a Nack has kept was made while the message was handled, what is in the body comes from
// the publisher.
func (c *codec) decodeMessage(claimed queue.Claimed) (msg *message.Message, lastError string, err error) {
	msg, err = c.unmarshal(claimed.Body, claimed.Metadata)
	if err != nil {
		return nil, "", err
	}
	mark := delays.AsPublished
	if len(claimed.Metadata) > 0 {
		mark = delays.AsMade
		lastError = takeLastError(msg.Metadata)
	}
	delays.MarkElapsed(msg.Metadata, mark)
	return msg, lastError, nil
}

// takeLastError removes the error that a Nack has kept from the metadata that it has kept.
func takeLastError(metadata message.Metadata) (text string) {
	text = metadata[queue.LastErrorMetadata]
	delete(metadata, queue.LastErrorMetadata)
	return text
}

// unmarshal decodes a message, with the metadata that a Nack kept, if any.
func (c *codec) unmarshal(body, metadata []byte) (msg *message.Message, err error) {
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
func (c *codec) redelivery(ctx context.Context, msg *message.Message) (nack queue.Nack, err error) {
	delivered, _ := DeliveryFromContext(ctx)
	if made := delivered.decided(); made != nil {
		nack, err = c.nackFor(delivered, made, msg.Metadata)
	} else {
		nack, err = c.defaultNack(delivered, msg.Metadata)
	}
	nack.Error = delivered.recorded()
	return nack, err
}

// nackFor returns the nack of a decision. With an error, it does not keep the metadata.
func (c *codec) nackFor(delivered Delivery, made *decision, metadata message.Metadata) (nack queue.Nack, err error) {
	was, known := c.metadataOf(delivered)
	if made.reason != "" {
		nack.Reason = made.reason
	} else {
		nack.Deferred, nack.Delay = true, max(time.Until(made.dueAt), MinRedeliveryDelay)
		if known {
			if metadata = maps.Clone(metadata); metadata == nil {
				metadata = message.Metadata{}
			}
			delays.Of(was).Put(metadata)
		}
	}
	if !known || !maps.Equal(was, metadata) || delivered.recorded() != "" {
		nack.Metadata, err = c.encodeForNack(delivered.withLastError(metadata))
	}
	return nack, err
}

// defaultNack returns the nack of a message about which nothing was decided.
func (c *codec) defaultNack(delivered Delivery, metadata message.Metadata) (nack queue.Nack, err error) {
	meta := delays.Pending(metadata)
	remaining, err := meta.Remaining(time.Now())
	if err != nil || meta == (delays.Metadata{}) {
		delay, failed := c.nackDelay(delivered.Attempt)
		remaining = delay
		nack.Metadata, err = c.metadataWithError(delivered, errors.Join(err, failed))
	} else {
		nack.Metadata, err = c.encodeForNack(delivered.withLastError(metadata))
	}
	nack.Delay = max(remaining, MinRedeliveryDelay)
	return nack, err
}

// metadataWithError is the metadata as delivered, with a new error; nil if there is no new error.
func (c *codec) metadataWithError(delivered Delivery, before error) ([]byte, error) {
	if text := delivered.recorded(); text == "" || text == delivered.LastError {
		return nil, before
	}
	was, known := c.metadataOf(delivered)
	if !known {
		return nil, before
	}
	encoded, err := c.encodeForNack(delivered.withLastError(was))
	return encoded, errors.Join(before, err)
}

// metadataOf is the metadata of a message as it was delivered, if that is still known: a
// handler may have changed the body in place.
func (c *codec) metadataOf(d Delivery) (metadata message.Metadata, known bool) {
	msg, _, err := c.decodeMessage(d.handling.claimed)
	if err != nil {
		return nil, false
	}
	return msg.Metadata, true
}

// withLastError is metadata to keep, with the delivery's error or, if it has none, the one before.
func (d Delivery) withLastError(metadata message.Metadata) message.Metadata {
	text := d.recorded()
	if text == "" {
		text = d.LastError
	}
	if text == "" {
		return metadata
	}
	metadata = maps.Clone(metadata)
	if metadata == nil {
		metadata = message.Metadata{}
	}
	metadata[queue.LastErrorMetadata] = text
	return metadata
}

// encodeForNack encodes metadata for the next delivery.
func (c *codec) encodeForNack(metadata message.Metadata) ([]byte, error) {
	encoded, err := encodeMetadata(metadata)
	if len(metadata) == 0 {
		encoded = []byte{0x80} // a MessagePack map without entries; nothing would keep the old metadata
	}
	if err != nil || len(encoded) <= maxChangedMetadata {
		return encoded, err
	}
	return nil, fmt.Errorf("%w: %d bytes, limit %d", errMetadataTooLarge, len(encoded), maxChangedMetadata)
}

// nackDelay is the delay after a delivery; with an error, it is the default delay.
func (c *codec) nackDelay(attempt int) (delay time.Duration, err error) {
	delay = defaultNackDelay(attempt)
	defer recovered(&err)
	return c.config.NackDelay(attempt), nil
}
