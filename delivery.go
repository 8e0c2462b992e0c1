package redisdelay

import (
	"context"
	"errors"
	"fmt"
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
