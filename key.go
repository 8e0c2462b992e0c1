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

	"github.com/redisdelay/watermill-redisdelay/internal/delays"
	"github.com/redisdelay/watermill-redisdelay/internal/publish"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

var (
	// ErrInvalidKey is returned for a message key (SetKey) that is empty or longer than MaxKeyBytes.
	ErrInvalidKey = errors.New("invalid message key")

	// ErrInvalidDuplicatePolicy is returned for a message with an unknown policy (SetOnDuplicate).
	ErrInvalidDuplicatePolicy = errors.New("invalid duplicate policy")

	// ErrDuplicateMessage is returned by Publish under RejectDuplicate if the key of a message is in use. No message of
	// the call is stored, unless the error is also a *PartialPublishError or ErrOutcomeUnknown.
	ErrDuplicateMessage = publish.ErrDuplicate

	// ErrMessageNotFound is returned if no message can be changed: none has the key or, in package admin, the id, or it
	// is in a state that the call does not change. The Status then has its ID and says where it is.
	ErrMessageNotFound = queue.ErrNotFound

	// ErrMessageDead is returned by Cancel and Reschedule if the message has only dead messages left, which they do not
	// change. It wraps ErrMessageNotFound, so check it first.
	ErrMessageDead = queue.ErrDead
)

const (
	// KeyMetadata is the metadata that holds the key of a message (SetKey).
	KeyMetadata = "_redisdelay_key"

	// OnDuplicateMetadata is the metadata that holds the duplicate policy of a message (SetOnDuplicate).
	OnDuplicateMetadata = "_redisdelay_on_duplicate"

	// MaxKeyBytes is the maximum length of a message key in bytes.
	MaxKeyBytes = 512
)

// DuplicatePolicy is what Publish does with a message whose key is in use ([SetKey]).
type DuplicatePolicy string

const (
	// RejectDuplicate stores no message of the call: Publish returns ErrDuplicateMessage. The default.
	RejectDuplicate DuplicatePolicy = "reject"

	// IgnoreDuplicate drops the new message. Publish succeeds; observe.Published, the metrics and the debug log report
	// it.
	IgnoreDuplicate DuplicatePolicy = "ignore"

	// ReplaceDuplicate stores the new message and drops the old one. If the old one was already given to a group, both
	// are delivered. It ignores a DeduplicationWindow, and starts a new one.
	ReplaceDuplicate DuplicatePolicy = "replace"
)

// SetKey gives a message a key of 1 to MaxKeyBytes bytes; otherwise Publish returns ErrInvalidKey. In a topic, a key is
// in use from Publish until all groups have acked its message, a group has dead-lettered it, or it is cancelled,
// and at least for the PublisherConfig.DeduplicationWindow. PublisherConfig.OnDuplicate is what happens to another
// message with a key in use. Cancel and Reschedule find a message by its key, a dead message until another message takes
// the key.
//
// The key is in use while a handler has the message. To publish the next message under the same key, the handler needs
// ReplaceDuplicate. For the keys of other messages that a handler publishes, see [Delivery.StepKey].
//
// On a topic with several partitions, messages with the same key are duplicates only if their ordering keys
// ([SetOrderingKey]) are the same, too. A republished message has no key (see the package comment).
func SetKey(msg *message.Message, key string) {
	setMetadata(msg, KeyMetadata, key)
}

// SetOnDuplicate gives a message a duplicate policy, which takes precedence over PublisherConfig.OnDuplicate. With an
// unknown policy, Publish returns ErrInvalidDuplicatePolicy. Messages of one Publish call with different policies may
// be stored in part ([*PartialPublishError]).
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

// Cancel cancels the message that holds a key ([SetKey]) in every group that has not acked it, ends the key's
// DeduplicationWindow, and returns the status before. A message in delivery (StateInDelivery) is not delivered again;
// the context of its handler ends at the consumer's next heartbeat, within a third of its LeaseDuration. Dead messages
// stay. If the number of partitions was raised, several messages may hold the key: all are cancelled, and the Status is
// that of the one published last.
//
// The call ends with ctx or after PublishTimeout. It does not retry, but may be repeated. Errors:
//
//   - [ErrMessageNotFound]: no message holds the key. The window stays.
//   - [ErrMessageDead]: only dead messages are left.
//   - [ErrOutcomeUnknown]: the message may be cancelled, at the latest when the call's time is over.
//   - [ErrInvalidKey], [ErrPublisherClosed].
//
// Except with ErrOutcomeUnknown, nothing has changed after an error.
func (p *Publisher) Cancel(ctx context.Context, topic, key string) (Status, error) {
	if err := validateTarget("cancel", topic, key); err != nil {
		return Status{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.config.PublishTimeout)
	defer cancel()
	status, err := p.publisher.Cancel(ctx, topic, key)
	return publicStatus(status), public(err)
}

// Reschedule gives the message that holds a key ([SetKey]) a new due time in the groups in which it waits for its first
// delivery or for a retry, and returns the status before. Its delay metadata and expiration ([SetExpiration]) stay as
// they are. A repeated call counts the delay anew.
//
// The errors are those of Cancel and [*DelayError]. After ErrMessageNotFound, a Status with an ID says that the message
// is being handled.
func (p *Publisher) Reschedule(ctx context.Context, topic, key string, to delay.Delay) (Status, error) {
	if err := validateTarget("reschedule", topic, key); err != nil {
		return Status{}, err
	}
	remaining, err := delays.Remaining(to, time.Now())
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
	if delivery, redelivered := republished(msg); redelivered && key != "" && key == delivery.key {
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

// republished reports whether a message is the delivered one that its handler publishes again.
func republished(msg *message.Message) (Delivery, bool) {
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

// Status is the state of a message before a call for its key changed it. The zero value says that there is no such
// message, or that its state is unknown.
type Status struct {
	// ID is that of Delivery.
	ID string

	// Scheduled says that no group had been given the message: it was not due, or due and not claimed yet. Groups is
	// empty then, so In returns nil.
	Scheduled bool

	// Groups has the state for each consumer group of the topic, and for retiring groups that still hold the message.
	Groups map[string]State
}

// State is the state of a message for a consumer group.
type State string

// The states of a message for a consumer group.
const (
	// StateQueued says that the message waits, and no delivery counts: it was not delivered, was returned before a
	// handler saw it, was postponed (Defer) each time, or is a requeued dead message.
	StateQueued State = "queued"

	// StateRetrying says that the message waits for its next delivery: a handler nacked it, or was lost.
	StateRetrying State = "retrying"

	// StateInDelivery says that a consumer holds the message: a handler has it, or will have it soon. A consumer that
	// died counts until another one takes over.
	StateInDelivery State = "in-delivery"

	// StateDone says that the group is done with the message: it has acked or discarded it, or started only after the
	// message was given to the other groups.
	StateDone State = "done"

	// StateDead says that the message is a dead message of the group.
	StateDead State = "dead"
)

// In returns the sorted names of the groups for which the message was in a state.
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

// String describes the status, such as "billing: done, shipping: queued".
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
