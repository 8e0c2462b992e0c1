package redisdelay

import (
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"
)

const (
	// OrderingKeyMetadata is the metadata that holds a message's ordering key. See SetOrderingKey.
	OrderingKeyMetadata = "_redisdelay_ordering_key"

	// MaxOrderingKeyBytes is the maximum length of an ordering key in bytes.
	MaxOrderingKeyBytes = 512
)

// ErrInvalidOrderingKey is returned for an ordering key (SetOrderingKey) that is empty or longer than
// MaxOrderingKeyBytes.
var ErrInvalidOrderingKey = errors.New("invalid ordering key")

// SetOrderingKey gives a message an ordering key, such as the number of an account. Each consumer group handles the
// messages of a key one at a time, over all its subscribers and whatever MaxInFlight is, in the order of their due
// times and, for the same millisecond, in that of one Publisher's calls. The next message is delivered when the one
// before is acked, has become a dead letter, or is cancelled. Messages with other keys, or without a key, are not
// delayed.
//
// A message that is not due does not block its key. A message that fails keeps its turn: after a Nack, a Defer or a
// lost lease, its key waits for it. With GroupLimits.HaltsKeys, a key also waits for its dead letter.
//
// All messages of an ordering key go to one partition of the topic. The ordering key takes precedence over the message
// key (SetKey): in a topic with several partitions, messages with the same message key need the same ordering key.
// Raising the number of partitions may send a key to another partition, where its new messages do not wait for the old
// ones.
//
// Deliveries of a key do not overlap, but handlers are not stopped: a handler that continues after its context has
// ended, because its consumer lost the lease, runs concurrently with the next delivery. Pass on Delivery.Token, so that
// other services can reject its work.
//
// A message that a handler publishes again keeps its ordering key. A key has 1 to MaxOrderingKeyBytes bytes; with
// an empty or longer one, Publish returns ErrInvalidOrderingKey.
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
