package redisdelay

import (
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// ExpirationMetadata is the metadata that holds the expiration of a message, in the format time.RFC3339Nano
// ([SetExpiration]).
const ExpirationMetadata = "_redisdelay_expiration"

// ErrInvalidExpiration is returned if the ExpirationMetadata of a message are not a time.
var ErrInvalidExpiration = errors.New("invalid expiration")

// ExpirationPolicy is what a Subscriber does with a message that has expired ([SetExpiration]).
type ExpirationPolicy string

const (
	// BuryExpired dead-letters the message in its group, with the reason "expired". The default.
	BuryExpired ExpirationPolicy = "bury"

	// DropExpired ends the message for the group, as an Ack does.
	DropExpired ExpirationPolicy = "drop"
)

// SetExpiration makes a message expire at a time: afterwards, no handler receives it, not even for a retry. The zero
// time removes the expiration. SubscriberConfig.OnExpired is what happens to an expired message.
//
// Subscribers check the expiration by Redis's clock right before they hand out the message. A handler that has the
// message keeps it, and a message that no consumer claims stays in Redis. Reschedule and requeueing do not move the
// expiration. A republished message has none (see the package comment).
func SetExpiration(msg *message.Message, at time.Time) {
	if at.IsZero() {
		delete(msg.Metadata, ExpirationMetadata)
		return
	}
	setMetadata(msg, ExpirationMetadata, at.UTC().Format(time.RFC3339Nano))
}

// Expiration returns when a message expires ([SetExpiration]), or the zero time if it does not. The error wraps
// ErrInvalidExpiration.
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
