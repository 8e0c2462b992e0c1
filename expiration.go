package redisdelay

import (
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// ExpirationMetadata is the metadata that holds when a message expires, in the format time.RFC3339Nano. See SetExpiration.
const ExpirationMetadata = "_redisdelay_expiration"

// ErrInvalidExpiration is returned for a message whose ExpirationMetadata is not a time.
var ErrInvalidExpiration = errors.New("invalid expiration")

// ExpiryPolicy says what a Subscriber does with a message that has expired (SetExpiration).
type ExpiryPolicy string

const (
	// BuryExpired makes the message a dead letter of the group, with the reason "expired". It is the default.
	BuryExpired ExpiryPolicy = "bury"

	// DropExpired ends the message for the group, as an Ack does.
	DropExpired ExpiryPolicy = "drop"
)

// SetExpiration makes a message expire at a time: from then on, it is not delivered to a handler, not even for a retry.
// For example, a one-time password is useless five minutes after it is due. The zero time removes the expiration.
//
// Subscribers check the expiration when they hand out the message. They use Redis's clock, so an error of the
// publisher's clock shifts the expiration. SubscriberConfig.OnExpired decides what happens to an expired message. A
// handler that already has the message keeps it. A message that no consumer claims stays in Redis after its expiration.
//
// The expiration is part of the stored message. Reschedule, and requeueing a dead letter, do not move it.
// A handler that publishes its own message again, as a requeuer or a poison queue does, publishes it without the expiration that it
// was delivered with, so that a failed message is not lost in a poison queue. To keep the expiration, give the message a new UUID.
func SetExpiration(msg *message.Message, at time.Time) {
	if at.IsZero() {
		delete(msg.Metadata, ExpirationMetadata)
		return
	}
	setMetadata(msg, ExpirationMetadata, at.UTC().Format(time.RFC3339Nano))
}

// Expiration returns when a message expires (SetExpiration). It is the zero time if the message does not expire. The
// error wraps ErrInvalidExpiration.
func Expiration(msg *message.Message) (time.Time, error) {
	text, set := msg.Metadata[ExpirationMetadata]
	if !set {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: metadata %s: %q: %w", ErrInvalidExpiration, ExpirationMetadata, text, err)
	}
	return at, nil
}
