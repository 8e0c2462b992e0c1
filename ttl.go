package redisdelay

import (
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// TTLMetadata is the metadata that holds a message's time to live, as time.Duration writes it. See SetTTL.
const TTLMetadata = "_redisdelay_ttl"

// ErrInvalidTTL is returned for a time to live (SetTTL) that is no duration, below 1ms, or above 100 years.
var ErrInvalidTTL = errors.New("invalid time to live")

// ExpiryPolicy says what a Subscriber does with a message whose time to live (SetTTL) is over.
type ExpiryPolicy string

const (
	// BuryExpired makes the message a dead letter of the group, with the reason "expired". It is the default.
	BuryExpired ExpiryPolicy = "bury"

	// DropExpired ends the message for the group, as an Ack does.
	DropExpired ExpiryPolicy = "drop"
)

// SetTTL gives a message a time to live, from 1ms to 100 years, rounded down to whole milliseconds; outside that range,
// Publish returns ErrInvalidTTL. It counts from when the message is due: a one-time password is of no use 5 minutes later.
// For a message that is overdue when it is published, it counts from when Redis stores it.
// No handler gets a message whose time to live is over by Redis's clock, not for a retry either:
// SubscriberConfig.OnExpired says what becomes of it. A handler that has the message keeps it. The time that Redis's
// reply with the message takes on its way does not count.
//
// A message that is rescheduled, or a dead letter that is requeued, is due anew, and lives as long again. There is one exception:
// a message that waits in line for its ordering key (SetOrderingKey) keeps its due time, unless the new one is later than now.
// A message that a handler publishes again, as a requeuer or a poison queue does, is published without a time to live, also if the
// handler has set one: publish a new message for that.
func SetTTL(msg *message.Message, ttl time.Duration) {
	setMetadata(msg, TTLMetadata, ttl.String())
}

// ttlOf is the time to live that a message is published with, 0 for none.
func ttlOf(msg *message.Message) (time.Duration, error) {
	text, set := msg.Metadata[TTLMetadata]
	if _, again := publishedAgain(msg); !set || again {
		return 0, nil
	}
	ttl, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%w: %q: %w", ErrInvalidTTL, text, err)
	case ttl < time.Millisecond || ttl > maxDuration:
		return 0, fmt.Errorf("%w: %s, want 1ms to %s", ErrInvalidTTL, ttl, maxDuration)
	}
	return ttl.Truncate(time.Millisecond), nil
}
