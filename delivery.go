package redisdelay

import (
	"context"
	"time"
)

// Delivery describes one delivery of a message.
type Delivery struct {
	// Topic and Group are where the message was delivered.
	Topic, Group string

	// ID is the message's id in Redis: a ULID of 26 characters, then, if the message has
	// a key (SetKey), a colon and that key. It is unique, unlike the UUID, and the same in
	// every delivery and group. Those of one Publisher sort in the order of publishing.
	ID string

	// Attempt counts the deliveries of the message to handlers of the group, from 1, as
	// far as Redis knows: if a handler's process dies before the next heartbeat, the same
	// number may come twice. A message that was only held ahead was not delivered, and one
	// that was put off (Defer) comes with the same number again. A dead letter that is
	// requeued starts again at 1.
	Attempt int

	// MaxDeliveries is that of the Subscriber; 0 for no limit. See Last.
	MaxDeliveries int

	// Token grows with each delivery of the message to the group, also when a dead letter
	// is requeued, and is never repeated. Pass it on as a fencing token: a service that
	// keeps the highest token it has seen can reject the work of a consumer that has
	// lost the message without noticing.
	Token int64

	// DueAt is when this delivery was due, in whole milliseconds of Redis's clock:
	// after a Nack, the time that it set; after a lease ran out, the end of the lease.
	DueAt time.Time

	// LeasedUntil is when the lease ends, by Redis's clock, if the consumer goes
	// silent at once. A live consumer extends it.
	LeasedUntil time.Time

	// LastError is the text of the last error that was recorded for the message in the group
	// (RecordErrors); "" if there is none.
	LastError string

	due      time.Time       // DueAt by this host's clock
	held     context.Context // ends when the consumer no longer holds the message
	key      string          // message key as delivered
	uuid     string          // the message's UUID as delivered
	handling *handling       // nil in a Delivery that is not from DeliveryFromContext
}

// StepKey is a message key (SetKey) for a message that the handler of this delivery
// publishes: the 26 characters of the ULID in ID, "/" and the step. It is the same in each
// redelivery, also of a dead letter that is requeued, so the message is stored only once if
// the Publisher has IgnoreDuplicate and a DeduplicationWindow that is longer than
// redeliveries may take.
//
// Messages to one topic need different steps: those that one handler publishes, and those
// of two groups that handle the same message. The step has at most MaxKeyBytes-27 bytes;
// with a longer one, Publish returns ErrInvalidKey. So it does with the empty key that the
// zero Delivery makes.
func (d Delivery) StepKey(step string) string {
	if d.ID == "" {
		return ""
	}
	return d.ID[:min(len(d.ID), ulidLength)] + "/" + step
}

// ulidLength is how many characters of an id come before the message key.
const ulidLength = 26

// Late is for how long the message has been due by now, whatever this host's clock says:
// Redis's clock at the delivery counts, and the time since then. It is negative if the message
// is early, and 0 for a Delivery that is not from DeliveryFromContext.
func (d Delivery) Late() time.Duration {
	if d.due.IsZero() {
		return 0
	}
	return time.Since(d.due)
}

// Last reports whether this is the last delivery that MaxDeliveries allows: with a Nack, the message
// becomes a dead letter of the group, unless the handler puts it off (Defer). If the consumer dies
// instead, the message becomes one too, or is delivered once more. It is false without a limit.
func (d Delivery) Last() bool { return d.MaxDeliveries > 0 && d.Attempt >= d.MaxDeliveries }

type deliveryKey struct{}

// DeliveryFromContext returns the delivery that a message context belongs to,
// and whether there is one: a Subscriber of this package delivered the message.
func DeliveryFromContext(ctx context.Context) (Delivery, bool) {
	d, ok := ctx.Value(deliveryKey{}).(Delivery)
	return d, ok
}
