package redisdelay

import (
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"
)

const (
	// OrderingKeyMetadata is the metadata that holds the ordering key of a message (SetOrderingKey).
	OrderingKeyMetadata = "_redisdelay_ordering_key"

	// MaxOrderingKeyBytes is the maximum length of an ordering key in bytes.
	MaxOrderingKeyBytes = 512
)

// ErrInvalidOrderingKey is returned for an ordering key ([SetOrderingKey]) that is empty or longer than
// MaxOrderingKeyBytes.
var ErrInvalidOrderingKey = errors.New("invalid ordering key")

// SetOrderingKey gives a message an ordering key, such as the number of an account, of 1 to MaxOrderingKeyBytes bytes;
// otherwise Publish returns ErrInvalidOrderingKey. Each consumer group handles the messages of a key one at a time,
// over all its subscribers and whatever MaxInFlight is: by due time and, within a millisecond, in the order of one
// Publisher's calls. The next message is delivered when the one before is acked, dead, or cancelled. Other messages are
// not delayed.
//
// Only due messages block their key. After a Nack, a Defer or a lost lease, the key waits for the same message. With
// GroupLimits.HaltsKeys, it also waits for its dead message.
//
// All messages of an ordering key go to one partition. Raising the number of partitions may send its new messages to
// another one, where they do not wait for the old ones.
//
// A handler that continues after its lease was lost overlaps with the next delivery. Pass on Delivery.Token, so that
// other services can reject its calls.
func SetOrderingKey(msg *message.Message, key string) {
	setMetadata(msg, OrderingKeyMetadata, key)
}

// orderingKeyOf is the ordering key of a message, "" if it has none.
func orderingKeyOf(msg *message.Message) (string, error) {
	key, ordered := msg.Metadata[OrderingKeyMetadata]
	if !ordered {
		return "", nil
	}
	return key, validateKey(key, MaxOrderingKeyBytes, ErrInvalidOrderingKey)
}
