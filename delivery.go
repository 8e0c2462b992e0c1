package redisdelay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/internal/delays"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// Delivery is one delivery of a message to a handler.
type Delivery struct {
	// Topic and Group are where the message was delivered.
	Topic, Group string

	// ID is the message's id in Redis: a ULID of 26 characters, followed by the ordering key and the key of the
	// message, if it has them. It is unique, and the same in every delivery and group. The ids of one Publisher sort in
	// the order of publishing.
	ID string

	// Attempt counts the deliveries of the message to handlers of the group, from 1. Prefetched and postponed (Defer)
	// deliveries do not count, and a requeued dead message starts again at 1. If a process dies right after it received
	// the message, the number may repeat.
	Attempt int

	// MaxDeliveries is that of the Subscriber; 0: no limit. See IsLastAttempt.
	MaxDeliveries int

	// Token is a fencing token: it grows with each delivery of the message to the group, also of a requeued dead
	// message. Redis ignores the settlement of a delivery after another consumer has claimed the message. A service that
	// handlers call can keep the highest token of each message (ID) and group, and reject calls with a lower one. An
	// equal token is the same delivery. Only data that Redis has lost can repeat a token (docs/use/reliability.md).
	Token int64

	// DueAt is when this delivery was due, in milliseconds of Redis's clock: after a Nack, the time that it set; after
	// a lost lease, the end of the lease.
	DueAt time.Time

	// LeasedUntil is when the first lease of this delivery ends, by Redis's clock. Extensions do not change it.
	LeasedUntil time.Time

	// LastError is the last recorded error of the message in the group (RecordErrors); "": none.
	LastError string

	due        time.Time       // DueAt by this host's clock
	held       context.Context // ends when the consumer no longer holds the message
	key        string          // message key as delivered
	expiration string          // ExpirationMetadata as delivered
	uuid       string          // the message's UUID as delivered
	handling   *handling       // nil in a Delivery that is not from DeliveryFromContext
}

// StepKey returns a key ([SetKey]) for a message that the handler of this delivery publishes: the ULID of ID, "/" and
// step. It is the same in each redelivery, also of a requeued dead message, so the message is stored only once if the
// Publisher has IgnoreDuplicate and a DeduplicationWindow longer than redeliveries may take.
//
// Handlers of different groups, and messages of one handler to the same topic, need different steps. StepKey does not
// check the length: with a step of more than MaxKeyBytes-27 bytes, Publish returns ErrInvalidKey. For the zero
// Delivery, it returns "".
func (d Delivery) StepKey(step string) string {
	if d.ID == "" {
		return ""
	}
	return d.ID[:min(len(d.ID), script.IDLength)] + "/" + step
}

// Lateness returns how long the message has been due, negative if it is early. It does not depend on this host's wall
// clock. It is 0 for a Delivery that is not from DeliveryFromContext.
func (d Delivery) Lateness() time.Duration {
	if d.due.IsZero() {
		return 0
	}
	return time.Since(d.due)
}

// IsLastAttempt reports whether this is the last delivery that MaxDeliveries allows: after a Nack, the message is
// dead-lettered, unless the handler postpones it (Defer). It is false without a limit. Do not rely on it for cleanup that must
// happen: if the process dies, the message is dead-lettered without another delivery, or has one more, for which
// IsLastAttempt is true.
func (d Delivery) IsLastAttempt() bool { return d.MaxDeliveries > 0 && d.Attempt >= d.MaxDeliveries }

type deliveryKey struct{}

// DeliveryFromContext returns the delivery that a message context belongs to. It returns false if no Subscriber of this
// package delivered the message.
func DeliveryFromContext(ctx context.Context) (Delivery, bool) {
	d, ok := ctx.Value(deliveryKey{}).(Delivery)
	return d, ok
}

// MaxReasonBytes is the maximum length of the reason of a dead message (Delivery.Bury) and of a recorded error
// (Delivery.RecordError).
const MaxReasonBytes = queue.MaxReasonBytes // 1000

const noReason = "buried by its handler"

var (
	errNotDelivered = errors.New("the Delivery does not come from DeliveryFromContext")
	errSettled      = errors.New("the message is already acked or nacked")
)

// decision is what a handler has decided about its message.
type decision struct {
	dueAt  time.Time // after Defer
	reason string    // after Bury
}

// handling is what all copies of a Delivery share.
type handling struct {
	claimed  queue.Claimed
	msg      *message.Message         // as handed out; only whether it is settled matters
	decision atomic.Pointer[decision] // the last one; nil: none
	failure  atomic.Pointer[string]   // the last error; nil or "": none
}

// decide makes a decision, unless it comes too late.
func (h *handling) decide(made decision) error {
	if h == nil {
		return errNotDelivered
	}
	select {
	case <-h.msg.Acked():
		return errSettled
	case <-h.msg.Nacked():
		return errSettled
	default:
		h.decision.Store(&made)
		return nil
	}
}

// Defer postpones the message without counting this delivery: the next one has the same Attempt, and MaxDeliveries does
// not limit how often a message is postponed.
//
// The decision takes effect with the Nack of this delivery, which a Router makes if the handler returns an error. So do
// not return the result of Defer, which is nil: an Ack ignores the decision. The last decision counts, Defer or Bury.
// It takes precedence over NackDelay and a delay in the metadata, and is dropped if the lease is lost or the handler
// outlasts CloseTimeout.
//
// The delay counts from now, even while Redis is unavailable, and is at least MinRedeliveryDelay. Changed metadata,
// except delays, are kept for the next delivery.
//
// It is safe for concurrent use. The error is a *DelayError, or says that the message is already settled or that the
// Delivery is not from DeliveryFromContext.
func (d Delivery) Defer(to delay.Delay) error {
	now := time.Now()
	remaining, err := delays.Remaining(to, now)
	if err == nil {
		err = d.handling.decide(decision{dueAt: now.Add(remaining)})
	}
	if err != nil {
		return wrap(err, "defer %q", d.ID)
	}
	return nil
}

// Bury dead-letters the message in its group, whatever MaxDeliveries says. Like Defer, it is a decision that
// takes effect with the Nack of this delivery.
//
// Package admin, the log and the Observer show the reason, which is cut to MaxReasonBytes; the default is "buried by
// its handler". The delivery counts. Changed metadata become part of the dead message.
//
// It is safe for concurrent use. The error says that the message is already settled or that the Delivery is not from
// DeliveryFromContext.
func (d Delivery) Bury(reason string) error {
	if reason = queue.Reason(reason); reason == "" {
		reason = noReason
	}
	if err := d.handling.decide(decision{reason: reason}); err != nil {
		return wrap(err, "bury %q", d.ID)
	}
	return nil
}

// Deferred reports whether the last decision of the handler is Defer. It is safe for concurrent use.
func (d Delivery) Deferred() bool {
	made := d.decided()
	return made != nil && made.reason == ""
}

// Buried reports whether the last decision of the handler is Bury. It is safe for concurrent use.
func (d Delivery) Buried() bool {
	made := d.decided()
	return made != nil && made.reason != ""
}

// decided is what the handler has decided; nil if nothing.
func (d Delivery) decided() *decision {
	if d.handling == nil {
		return nil
	}
	return d.handling.decision.Load()
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

// metadataOf is the metadata of a message as it was delivered, if that is still known: a
// handler may have changed the body in place.
func (c *codec) metadataOf(d Delivery) (metadata message.Metadata, known bool) {
	msg, _, err := c.decodeMessage(d.handling.claimed)
	if err != nil {
		return nil, false
	}
	return msg.Metadata, true
}

// RecordErrors is a Watermill middleware that records the errors and panics of handlers ([Delivery.RecordError]), so
// that retries and dead messages say what went wrong:
//
//	router.AddMiddleware(redisdelay.RecordErrors)
//
// Place it first, so that it sees the error that reaches the router. It may also stand inside middlewares that hide
// errors, such as PoisonQueue, because an ack forgets the error. It passes panics on, and does nothing for messages of
// other Subscribers.
func RecordErrors(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) (produced []*message.Message, err error) {
		d, delivered := DeliveryFromContext(msg.Context())
		if !delivered {
			return h(msg)
		}
		defer func() {
			if p := recover(); p != nil {
				d.RecordError(fmt.Errorf("panic: %v", p))
				panic(p)
			}
		}()
		produced, err = h(msg)
		d.RecordError(err)
		return produced, err
	}
}

// RecordError keeps an error with the message if this delivery is nacked, for package admin, the next delivery
// (Delivery.LastError), the Observer (observe.Settled), and the reason of a dead message by MaxDeliveries. The last
// error counts; nil withdraws it. An ack forgets all of them.
//
// The text is cut to MaxReasonBytes, and the stack trace of Watermill's Recoverer is removed. It is safe for concurrent
// use, and does nothing if the Delivery is not from DeliveryFromContext.
func (d Delivery) RecordError(err error) {
	if d.handling == nil {
		return
	}
	text := ""
	if err != nil {
		text, _, _ = strings.Cut(fmt.Sprint(err), ", stacktrace: \n") // fmt survives a panic in Error
		text = queue.Reason(text)
	}
	d.handling.failure.Store(&text)
}

// recorded is the error of this delivery; "" if there is none.
func (d Delivery) recorded() string {
	if d.handling == nil {
		return ""
	}
	if text := d.handling.failure.Load(); text != nil {
		return *text
	}
	return ""
}

// takeLastError removes the error that a Nack has kept from the metadata that it has kept.
func takeLastError(metadata message.Metadata) (text string) {
	text = metadata[queue.LastErrorMetadata]
	delete(metadata, queue.LastErrorMetadata)
	return text
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

// defaultNack returns the nack of a message about which nothing was decided.
func (c *codec) defaultNack(delivered Delivery, metadata message.Metadata) (nack queue.Nack, err error) {
	meta := delays.Pending(metadata)
	remaining, err := meta.Remaining(time.Now())
	if err != nil || meta == (delays.Metadata{}) {
		delay, failed := c.nackDelay(delivered.Attempt)
		remaining = delay
		nack.Metadata, err = c.sameMetadata(delivered, errors.Join(err, failed))
	} else {
		nack.Metadata, err = c.encodeForNack(delivered.withLastError(metadata))
	}
	nack.Delay = max(remaining, MinRedeliveryDelay)
	return nack, err
}

// sameMetadata is the metadata as delivered, with a new error; nil if there is none to keep.
func (c *codec) sameMetadata(delivered Delivery, before error) ([]byte, error) {
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
