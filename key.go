package redisdelay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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

	// ErrInvalidDuplicatePolicy is returned for a message with an unknown policy (SetOnDuplicate).
	ErrInvalidDuplicatePolicy = errors.New("invalid duplicate policy")

	// ErrDuplicateMessage is returned by Publish under RejectDuplicate when the
	// key of one of the messages is in use. No message of the call is stored, unless
	// the error is a *PartialPublishError or ErrOutcomeUnknown as well.
	ErrDuplicateMessage = publish.ErrDuplicate

	// ErrMessageNotFound is returned for a key, or in package admin an id, that leads to no message:
	// it is done in all groups, was cancelled, or never was in this topic. Cancel and Reschedule
	// also return it for a message that they cannot change; then the Status says where it is.
	ErrMessageNotFound = queue.ErrNotFound

	// ErrMessageDead wraps ErrMessageNotFound. Cancel and Reschedule return it when only dead letters
	// are left of the message.
	ErrMessageDead = queue.ErrDead
)

const (
	// KeyMetadata is the metadata that holds a message's key. See SetKey.
	KeyMetadata = "_redisdelay_key"

	// OnDuplicateMetadata is the metadata that holds a message's duplicate policy. See SetOnDuplicate.
	OnDuplicateMetadata = "_redisdelay_on_duplicate"

	// MaxKeyBytes is the maximum length of a message key in bytes.
	MaxKeyBytes = 512
)

// DuplicatePolicy says what Publish does with a message whose key (SetKey) is in use: held
// by a message that is still waiting or being handled, or published within a
// PublisherConfig.DeduplicationWindow.
type DuplicatePolicy string

const (
	// RejectDuplicate makes Publish return ErrDuplicateMessage and store no message
	// of the call. It is the default.
	RejectDuplicate DuplicatePolicy = "reject"

	// IgnoreDuplicate drops the new message. Publish succeeds; the Observer (observe.Published),
	// the metrics and the debug log report the dropped message.
	IgnoreDuplicate DuplicatePolicy = "ignore"

	// ReplaceDuplicate stores the new message and drops the old one, unless a group has been given
	// it, which happens once it is due: then both are delivered. It ignores the DeduplicationWindow
	// of a finished message.
	ReplaceDuplicate DuplicatePolicy = "replace"
)

// SetKey gives a message a key of 1 to MaxKeyBytes bytes; with an empty or longer one, Publish returns
// ErrInvalidKey. Within a topic, one waiting message holds a key:
// PublisherConfig.OnDuplicate says what happens to a second one, and Cancel and
// Reschedule find the message by it. The key is free again once all groups have
// acked the message, one of them has made it a dead letter, or it is cancelled. Until another
// message takes it, Cancel and Reschedule still find a dead letter by the key that it had.
// With a PublisherConfig.DeduplicationWindow, it stays in use for longer. For what a handler
// publishes, Delivery.StepKey makes a key that is the same in each redelivery. On a topic with partitions, messages of
// one key are duplicates only if their ordering keys (SetOrderingKey) are the same, too.
//
// A message keeps its key while a handler has it. A handler that publishes the next message under the
// same key therefore needs ReplaceDuplicate: with IgnoreDuplicate, the next message is dropped.
//
// A handler that publishes its own message again, as a requeuer or a poison queue does, publishes it
// without its key, to whatever topic and although its metadata still shows the key. Give the message a
// new UUID to keep it.
func SetKey(msg *message.Message, key string) {
	setMetadata(msg, KeyMetadata, key)
}

// SetOnDuplicate says what Publish does with this message if its key (SetKey) is in use. It takes
// precedence over PublisherConfig.OnDuplicate. With an unknown policy, Publish returns
// ErrInvalidDuplicatePolicy. The policy is metadata, so an outbox keeps it. With ReplaceDuplicate, a DeduplicationWindow
// begins anew. Messages of one Publish call that have different policies may be stored in part: see
// PartialPublishError.
func SetOnDuplicate(msg *message.Message, policy DuplicatePolicy) {
	setMetadata(msg, OnDuplicateMetadata, string(policy))
}

// setMetadata sets metadata of a message that may have none yet.
func setMetadata(msg *message.Message, name, value string) {
	if msg.Metadata == nil {
		msg.Metadata = message.Metadata{}
	}
	msg.Metadata.Set(name, value)
}

// Cancel cancels the message that holds a key (SetKey) in every group that has not acked it, and returns its status
// before. It is too late for groups in StateDone, and a handler may be running for those in StateInDelivery. A consumer
// that has claimed the message notices it at its next heartbeat, within a third of its LeaseDuration, and cancels the
// message's context. The message is not delivered again.
//
// It cancels the message that holds the key when Redis runs the call, and ends the key's DeduplicationWindow.
// ErrMessageNotFound says that no message holds the key; then the window, if any, stays.
//
// A dead letter stays (package admin discards it). Cancel still cancels the message in the other groups, unless another
// message holds the key by now. ErrMessageDead says that only dead letters were left, and nothing has changed.
//
// If the number of partitions was raised, several messages may hold the key. All of them are cancelled. The Status is
// that of the message published last.
//
// The call ends with ctx or after PublishTimeout. Calls of many goroutines share round trips. Unlike Publish, Cancel does
// not try again after an error; calling it again is safe.
//
// Errors: ErrEmptyTopic, ErrInvalidKey, ErrPublisherClosed, ErrMessageNotFound, ErrMessageDead, ErrOutcomeUnknown,
// ErrProtocolTooNew, ErrServerTooOld, *KeyTypeError, or that of ctx or of Redis. With ErrOutcomeUnknown, the call was
// sent but not answered: the message may have been cancelled, or may still be until the deadline. With any other error
// nothing has changed, for example because the call was never sent.
func (p *Publisher) Cancel(ctx context.Context, topic, key string) (Status, error) {
	if err := validateTarget("cancel", topic, key); err != nil {
		return Status{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.config.PublishTimeout)
	defer cancel()
	status, err := p.publisher.Cancel(ctx, topic, key)
	return publicStatus(status), public(err)
}

// Reschedule gives the message that holds a key (SetKey) a new due time, if it waits for its first delivery or for a
// retry, and returns its status before. With several groups, it moves the message only in the groups in which it waits:
// nothing changes for a group that handles it, has acked it, or has it as a dead letter. The message's delay metadata
// and expiration (SetExpiration) stay as they are.
//
// ErrMessageNotFound says that no waiting message holds the key; if the Status has an ID,
// one is being handled. ErrMessageDead says that it is a dead letter. Several messages may
// hold the key, as for Cancel.
//
// The call ends with ctx or after PublishTimeout. Unlike Publish, it does not try again
// after an error; calling it again is safe, and counts the delay from then on.
//
// Errors: those of Cancel, and *DelayError. With ErrOutcomeUnknown, the message may have been moved, or may still be until
// the deadline. With any other error nothing has changed.
func (p *Publisher) Reschedule(ctx context.Context, topic, key string, to delay.Delay) (Status, error) {
	if err := validateTarget("reschedule", topic, key); err != nil {
		return Status{}, err
	}
	remaining, err := remainingOf(to, time.Now())
	if err != nil {
		return Status{}, wrap(err, "reschedule %q in %q", key, topic)
	}
	ctx, cancel := context.WithTimeout(ctx, p.config.PublishTimeout)
	defer cancel()
	status, err := p.publisher.Reschedule(ctx, topic, key, remaining)
	return publicStatus(status), public(err)
}

// keyOf is the key that a message is published under. A message that its handler
// publishes again, as a requeuer or a poison queue does, has none: it would be its own
// duplicate.
func keyOf(msg *message.Message) (string, error) {
	key, keyed := msg.Metadata[KeyMetadata]
	if !keyed {
		return "", nil
	}
	if delivery, redelivered := publishedAgain(msg); redelivered && key != "" && key == delivery.key {
		return "", nil
	}
	return key, validateKey(key, MaxKeyBytes, ErrInvalidKey)
}

// onDuplicateOf is the duplicate policy of a message: its own or, without one, the default.
func onDuplicateOf(msg *message.Message, standard DuplicatePolicy) (DuplicatePolicy, error) {
	text, own := msg.Metadata[OnDuplicateMetadata]
	policy := DuplicatePolicy(text)
	switch {
	case !own:
		return standard, nil
	case !policy.known():
		return "", fmt.Errorf("%w: %q", ErrInvalidDuplicatePolicy, text)
	}
	return policy, nil
}

func (p DuplicatePolicy) known() bool {
	return p == RejectDuplicate || p == IgnoreDuplicate || p == ReplaceDuplicate
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
	if err := validateKey(key, MaxKeyBytes, ErrInvalidKey); err != nil {
		return wrap(err, "%s", verb)
	}
	return nil
}

// validateKey reports why a text cannot be a key of a kind, which has a maximum length in bytes.
func validateKey(key string, maximum int, invalid error) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: it is empty", invalid)
	case len(key) > maximum:
		return fmt.Errorf("%w: it has %d bytes, at most %d are allowed, and begins with %q",
			invalid, len(key), maximum, strings.ToValidUTF8(key[:20], "?"))
	default:
		return nil
	}
}

// Canceler cancels messages by their keys. A Publisher implements it. Code that depends only on this interface can be
// tested with a fake, or be given a decorator.
type Canceler interface {
	Cancel(ctx context.Context, topic, key string) (Status, error)
}

// Rescheduler gives messages new due times by their keys. A Publisher implements it.
type Rescheduler interface {
	Reschedule(ctx context.Context, topic, key string, to delay.Delay) (Status, error)
}

var (
	_ Canceler    = (*Publisher)(nil)
	_ Rescheduler = (*Publisher)(nil)
)

// Status is the state of a message when Redis ran a call for its key, before the call changed anything. The zero value
// says that there is no such message, or that its state is unknown.
type Status struct {
	// ID is the message's id, as in Delivery.
	ID string

	// Scheduled says that no group had been given the message yet: it was not due, or no consumer had claimed since it
	// became due. Groups is empty then.
	Scheduled bool

	// Groups has the state of the message for each consumer group of the topic, and for groups
	// that are being retired and still hold it.
	Groups map[string]State
}

// State is the state of a message for a consumer group.
type State string

// The states of a message for a consumer group.
const (
	// StateQueued says that the message waits and that no delivery of it counts: it has not been delivered yet, was
	// returned to the queue before a handler saw it, was postponed (Defer) each time, or is a dead letter that was
	// requeued.
	StateQueued State = "queued"

	// StateRetrying says that the message waits for its next delivery: a handler has nacked it,
	// or was lost with it.
	StateRetrying State = "retrying"

	// StateInDelivery says that a consumer holds the message: a handler has it, or will have
	// it soon. The consumer may be lost, as long as no other has taken over.
	StateInDelivery State = "in-delivery"

	// StateDone says that the group needs nothing more of the message: it has acked or
	// discarded it, or has begun only after the message was given to the other groups.
	StateDone State = "done"

	// StateDead says that the message is a dead letter of the group.
	StateDead State = "dead"
)

// In returns the names of the groups for which the message was in a state, sorted.
func (s Status) In(state State) []string {
	var names []string
	for name, other := range s.Groups {
		if other == state {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// String describes the status for people, as in "billing: done, shipping: queued".
func (s Status) String() string {
	switch {
	case s.ID == "":
		return "unknown"
	case len(s.Groups) == 0:
		return "scheduled"
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s.Groups)) {
		parts = append(parts, name+": "+string(s.Groups[name]))
	}
	return strings.Join(parts, ", ")
}

// publicStatus is a status as callers get it.
func publicStatus(in queue.Status) Status {
	s := Status{ID: in.ID, Scheduled: in.Scheduled}
	for name, state := range in.Groups {
		if s.Groups == nil {
			s.Groups = make(map[string]State, len(in.Groups))
		}
		s.Groups[name] = State(state)
	}
	return s
}
