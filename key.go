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
	// key of one of the messages is in use. No message of the call is stored, unless
	// the error is a *PartialPublishError as well.
	ErrDuplicateMessage = publish.ErrDuplicate

	// ErrMessageNotFound is returned for a key, or in package admin an id, that leads to no message:
	// it is done in all groups, was cancelled, or never was in this topic. Cancel and Reschedule
	// also return it for a message that they cannot change; then the Standing says where it is.
	ErrMessageNotFound = queue.ErrNotFound

	// ErrMessageDead is the ErrMessageNotFound of a message that is a dead letter, and that no
	// other group waits for or handles.
	ErrMessageDead = queue.ErrDead
)

const (
	// KeyMetadata is the metadata that holds a message's key. See SetKey.
	KeyMetadata = "_redisdelay_key"

	// MaxKeyBytes is the maximum length of a message key in bytes.
	MaxKeyBytes = 512
)

// OnDuplicate says what Publish does with a message whose key (SetKey) is in use: held
// by a message that is still waiting or being handled, or published within a
// PublisherConfig.DeduplicationWindow.
type OnDuplicate string

const (
	// RejectDuplicate makes Publish return ErrDuplicateMessage and store no message
	// of the call. It is the default.
	RejectDuplicate OnDuplicate = "reject"

	// IgnoreDuplicate drops the new message; Publish succeeds.
	IgnoreDuplicate OnDuplicate = "ignore"

	// ReplaceDuplicate stores the new message and drops the old one, unless a group
	// has been given it, which happens once it is due: then both are delivered. It heeds
	// no DeduplicationWindow: the message before is over, so the new one is stored.
	ReplaceDuplicate OnDuplicate = "replace"
)

// SetKey gives a message a key. Within a topic, one waiting message holds a key:
// PublisherConfig.OnDuplicate says what happens to a second one, and Cancel and
// Reschedule find the message by it. The key is free again once all groups have
// acked the message, one of them has made it a dead letter, or it is cancelled. Until another
// message takes it, Cancel and Reschedule still find a dead letter by the key that it had.
// With a PublisherConfig.DeduplicationWindow, it stays in use for longer. For what a handler
// publishes, Delivery.StepKey makes a key that is the same in each redelivery.
//
// A handler that publishes the next message under the key of its own message
// needs ReplaceDuplicate. A handler that publishes its own message again, as a
// requeuer or a poison queue does, publishes it without its key, to whatever topic and
// although its metadata still shows the key. Give the message a new UUID to keep it.
func SetKey(msg *message.Message, key string) {
	if msg.Metadata == nil {
		msg.Metadata = message.Metadata{}
	}
	msg.Metadata.Set(KeyMetadata, key)
}

// Cancel takes back the message that holds a key (SetKey), from every group that
// has not acked it, and returns where it stood: it is too late for groups in StateDone, and
// a handler may be at work for those in StateInDelivery. A consumer that has claimed the
// message finds out at its next heartbeat, which cancels the message's context; the message
// does not come back.
//
// It acts on the message that holds the key when Redis runs the call, even if that
// message is replaced all the time, and ends the key's DeduplicationWindow.
// ErrMessageNotFound says that none holds the key: then the window, if any, stays.
//
// A dead letter stays (package admin discards it). Cancel takes the message back from the
// other groups all the same, unless another message holds the key by now; ErrMessageDead says
// that nothing but dead letters was left, and nothing has changed.
//
// If the number of partitions was raised, several messages may hold the key. All are taken
// back; the Standing is that of the one published last.
//
// The call ends with ctx or after PublishTimeout. Unlike Publish, it does not try again
// after an error; calling it again is safe.
//
// Errors: ErrEmptyTopic, ErrInvalidKey, ErrPublisherClosed, ErrMessageNotFound,
// ErrMessageDead, ErrProtocolTooNew, ErrServerTooOld, *KeyTypeError, or that of ctx or of
// Redis. After one of the last three, the message may have been taken back, or may still be
// until the deadline.
func (p *Publisher) Cancel(ctx context.Context, topic, key string) (Standing, error) {
	if err := validateTarget("cancel", topic, key); err != nil {
		return Standing{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.config.PublishTimeout)
	defer cancel()
	standing, err := p.publisher.Cancel(ctx, topic, key)
	return publicStanding(standing), public(err)
}

// Reschedule gives the message that holds a key (SetKey) a new due time, if it
// waits for its first delivery or for a retry, and returns where it stood. With several
// groups, it moves the message only where it waits: nothing changes for a group that
// handles it, has acked it, or has it as a dead letter. The message's delay metadata stays as
// it is.
//
// ErrMessageNotFound says that no waiting message holds the key; if the Standing has an ID,
// one is being handled. ErrMessageDead says that it is a dead letter. Several messages may
// hold the key, as for Cancel.
//
// The call ends with ctx or after PublishTimeout. Unlike Publish, it does not try again
// after an error; calling it again is safe, and counts the delay from then on.
//
// Errors: those of Cancel, and *DelayError. After *KeyTypeError, or an error of ctx or of
// Redis, the message may have been moved, or may still be until the deadline.
func (p *Publisher) Reschedule(ctx context.Context, topic, key string, to delay.Delay) (Standing, error) {
	if err := validateTarget("reschedule", topic, key); err != nil {
		return Standing{}, err
	}
	remaining, err := remainingOf(to, time.Now())
	if err != nil {
		return Standing{}, leave(err, "reschedule %q in %q", key, topic)
	}
	ctx, cancel := context.WithTimeout(ctx, p.config.PublishTimeout)
	defer cancel()
	standing, err := p.publisher.Reschedule(ctx, topic, key, remaining)
	return publicStanding(standing), public(err)
}

// keyOf is the key that a message is published under. A message that its handler
// publishes again, as a requeuer or a poison queue does, has none: it would be its own
// duplicate.
func keyOf(msg *message.Message) (string, error) {
	key, keyed := msg.Metadata[KeyMetadata]
	if !keyed {
		return "", nil
	}
	if delivery, again := publishedAgain(msg); again && key != "" && key == delivery.key {
		return "", nil
	}
	return key, validateKey(key)
}

// publishedAgain tells whether a message is the delivered one that its handler publishes again.
func publishedAgain(msg *message.Message) (Delivery, bool) {
	delivery, delivered := DeliveryFromContext(msg.Context())
	return delivery, delivered && msg.UUID == delivery.uuid
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
