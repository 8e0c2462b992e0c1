package redisdelay

import (
	"errors"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// MaxReasonBytes is the maximum length of the reason of a dead letter that its handler
// has made (Delivery.Bury), and of an error that is kept with a message (Delivery.RecordError).
const MaxReasonBytes = 1000

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

// Defer decides that the message comes again at a time, although nothing is wrong: the
// delivery does not count. MaxDeliveries does not limit how often a message is put off, and
// the Attempt of the next delivery is the same.
//
// The decision takes effect with the Nack of this delivery, which a Router makes when the
// handler returns an error; an Ack ignores it. It goes before NackDelay and any delay in the
// metadata. The last decision counts, Defer or Bury. It is dropped if the consumer loses the
// message or the handler outlasts CloseTimeout.
//
// The delay counts from now, is at least MinRedeliveryDelay, and ends by Redis's clock. What
// has changed in the message's metadata is kept for the next delivery, as after a Nack with a
// delay in the metadata, except the delay itself: so DelayOnError does not grow its delay.
//
// It is safe for concurrent use. The error is a *DelayError for a delay that cannot be used,
// or says that the message is already settled or that the Delivery is not from
// DeliveryFromContext; then nothing is decided.
func (d Delivery) Defer(to delay.Delay) error {
	now := time.Now()
	remaining, err := remainingOf(to, now)
	if err == nil {
		err = d.handling.decide(decision{dueAt: now.Add(remaining)})
	}
	if err != nil {
		return leave(err, "defer %q", d.ID)
	}
	return nil
}

// Bury decides that the message can never be handled: it becomes a dead letter of the group
// with the next Nack, whatever MaxDeliveries says. Defer describes when a decision takes
// effect.
//
// The reason is what package admin, the log and the Observer show. Its length is limited to
// MaxReasonBytes, and the rest is dropped; an empty one reads "buried by its handler". The
// delivery counts. What has changed in the message's metadata is kept, and is part of the
// dead letter.
//
// It is safe for concurrent use. It does nothing if the message is already settled or the
// Delivery is not from DeliveryFromContext.
func (d Delivery) Bury(reason string) {
	if reason = bounded(reason); reason == "" {
		reason = noReason
	}
	_ = d.handling.decide(decision{reason: reason}) // nobody is left to carry it out
}

// Deferred reports whether the handler has put the message off (Defer), and has not decided
// otherwise since. It is safe for concurrent use.
func (d Delivery) Deferred() bool {
	made := d.decided()
	return made != nil && made.reason == ""
}

// bounded is a reason for people to read.
func bounded(reason string) string {
	reason = strings.TrimSpace(strings.ToValidUTF8(reason, "?"))
	if len(reason) > MaxReasonBytes {
		reason = strings.ToValidUTF8(reason[:MaxReasonBytes], "") // without half a character
	}
	return reason
}

// decided is what the handler has decided; nil if nothing.
func (d Delivery) decided() *decision {
	if d.handling == nil {
		return nil
	}
	return d.handling.decision.Load()
}

// carryOut returns the nack of a decision. With an error, it does not keep the metadata.
func (c codec) carryOut(delivered Delivery, made *decision, metadata message.Metadata) (nack queue.Nack, err error) {
	was, known := c.metadataOf(delivered)
	if made.reason != "" {
		nack.Reason = made.reason
	} else {
		nack.Deferred, nack.Delay = true, max(time.Until(made.dueAt), MinRedeliveryDelay)
		if known {
			metadata = maps.Clone(metadata)
			headersOf(was).put(metadata)
		}
	}
	if !known || !maps.Equal(was, metadata) || delivered.recorded() != "" {
		nack.Metadata, err = c.changed(delivered.withLastError(metadata))
	}
	return nack, err
}

// metadataOf is the metadata of a message as it was delivered, if that can still be told: a
// handler may have changed the body in place.
func (c codec) metadataOf(d Delivery) (metadata message.Metadata, known bool) {
	msg, _, err := c.delivered(d.handling.claimed)
	if err != nil {
		return nil, false
	}
	return msg.Metadata, true
}
