package redisdelay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/internal/publish"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

var (
	// ErrInvalidKey is returned for a message key (SetKey) that is empty or longer
	// than MaxKeyBytes.
	ErrInvalidKey = errors.New("invalid message key")

	// ErrDuplicateMessage is returned by Publish under RejectDuplicate when the
	// key of one of the messages is in use. Nothing of the call is stored, unless
	// it is stored in parts (PartialPublishError).
	ErrDuplicateMessage = publish.ErrDuplicate

	// ErrMessageNotFound is returned by Cancel and Reschedule when no message that
	// they could act on holds the key.
	ErrMessageNotFound = queue.ErrNotFound
)

const (
	// KeyMetadata is the metadata that holds a message's key. See SetKey.
	KeyMetadata = "_redisdelay_key"

	// MaxKeyBytes is the most bytes that a message key may have.
	MaxKeyBytes = 512
)

// OnDuplicate says what Publish does with a message whose key (SetKey) is held
// by a message that still waits or is being handled.
type OnDuplicate string

const (
	// RejectDuplicate makes Publish return ErrDuplicateMessage and store nothing
	// of the call. It is the default.
	RejectDuplicate OnDuplicate = "reject"

	// IgnoreDuplicate drops the new message; Publish succeeds.
	IgnoreDuplicate OnDuplicate = "ignore"

	// ReplaceDuplicate drops the old message if no group has been given it yet, which
	// happens when it is due, and stores the new one. Else both are delivered.
	ReplaceDuplicate OnDuplicate = "replace"
)

// SetKey gives a message a key. Within a topic, one waiting message holds a key:
// PublisherConfig.OnDuplicate says what happens to a second, and Cancel and
// Reschedule find the message by it. The key is free again once all groups have
// acked the message, one of them has made it a dead letter, or it is cancelled.
//
// A handler that publishes the next message under the key of the one that it
// handles needs ReplaceDuplicate. A handler that publishes the very message that it
// handles to its own topic publishes it without its key, which the message holds itself.
// In another topic, as that of a poison queue, the message keeps its key.
func SetKey(msg *message.Message, key string) {
	if msg.Metadata == nil {
		msg.Metadata = message.Metadata{}
	}
	msg.Metadata.Set(KeyMetadata, key)
}

// Cancel takes back the message that holds a key (SetKey), from every group that
// has not acked it. A consumer that has claimed it learns so at its next heartbeat,
// which cancels the message's context; the message does not come back.
//
// It acts on the message that holds the key when Redis gets to it, also when one takes
// the place of another all the time. ErrMessageNotFound says that none holds the key.
//
// It takes no longer than ctx and PublishTimeout allow. Unlike Publish it does not try
// again after an error; to call it again is safe.
//
// Errors: ErrEmptyTopic, ErrInvalidKey, ErrPublisherClosed, ErrMessageNotFound,
// ErrProtocolTooNew, ErrServerTooOld, *KeyTypeError, or that of ctx or of Redis. After one
// of the last three, the message may have been taken back, or may be until the deadline.
func (p *Publisher) Cancel(ctx context.Context, topic, key string) error {
	if err := validateTarget("cancel", topic, key); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, p.config.PublishTimeout)
	defer cancel()
	return public(p.publisher.Cancel(ctx, topic, key))
}

// Reschedule gives the message that holds a key (SetKey) a new due time, if it
// waits for its first delivery or for a retry. ErrMessageNotFound says that no
// waiting message holds the key. The delay metadata on the message stay as they are.
// With several groups, it moves the message only for those where it waits: for a group
// that handles it, or has acked it, nothing changes.
//
// It takes no longer than ctx and PublishTimeout allow. Unlike Publish it does not try
// again after an error; to call it again is safe, and counts the delay from then on.
//
// Errors: those of Cancel, and *DelayError. After *KeyTypeError, or an error of ctx or of
// Redis, the message may have been moved, or may be until the deadline.
func (p *Publisher) Reschedule(ctx context.Context, topic, key string, to delay.Delay) error {
	if err := validateTarget("reschedule", topic, key); err != nil {
		return err
	}
	carrier := message.NewMessage("", nil)
	delay.Message(carrier, to)
	remaining, err := headersOf(carrier.Metadata).remaining(time.Now())
	if err != nil {
		return leave(err, "reschedule %q in %q", key, topic)
	}
	ctx, cancel := context.WithTimeout(ctx, p.config.PublishTimeout)
	defer cancel()
	return public(p.publisher.Reschedule(ctx, topic, key, remaining))
}

// keyOf is the key that a message is published under. A message that its handler publishes
// to its own topic again has none: it holds its key itself.
func keyOf(topic string, msg *message.Message) (string, error) {
	key, keyed := msg.Metadata[KeyMetadata]
	if !keyed {
		return "", nil
	}
	delivery, _ := DeliveryFromContext(msg.Context())
	if key != "" && key == delivery.key && msg.UUID == delivery.uuid && topic == delivery.topic {
		return "", nil
	}
	return key, validateKey(key)
}

// validateTarget reports why no message can be found by a key in a topic.
func validateTarget(verb, topic, key string) error {
	if topic == "" {
		return ErrEmptyTopic
	}
	if err := validateKey(key); err != nil {
		return leave(err, "%s", verb)
	}
	return nil
}

func validateKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: it is empty", ErrInvalidKey)
	case len(key) > MaxKeyBytes:
		return fmt.Errorf("%w: it has %d bytes, at most %d are allowed, and begins with %q",
			ErrInvalidKey, len(key), MaxKeyBytes, strings.ToValidUTF8(key[:20], "?"))
	default:
		return nil
	}
}
