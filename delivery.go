package redisdelay

import (
	"context"
	"time"
)

// Delivery describes one delivery of a message.
type Delivery struct {
	// ID is the message's id in Redis: a ULID of 26 characters, then, if the message has
	// a key (SetKey), a colon and that key. It is unique, unlike the UUID, and the same in
	// every delivery and group. Those of one Publisher sort in the order of publishing.
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
