package admin

import (
	"context"
	"errors"
	"time"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// Why Copy, Move and Import cannot begin, or skip a message.
var (
	// ErrSameTopic is returned by Copy and Move if both topics are the same.
	ErrSameTopic = errors.New("messages cannot be copied or moved to their own topic")

	// ErrKeyInUse says that another message holds the key in the other topic, or that the key's
	// deduplication window lasts there.
	ErrKeyInUse = errors.New("the message key is in use there")

	// ErrStoredBefore says that the other topic has the message, or got it by Copy or Import in the
	// last day, or by Move in the last week.
	ErrStoredBefore = errors.New("the message was stored there before")

	// ErrBeingMoved says that a Move has the message, perhaps one that was interrupted: see
	// ResumeMoves.
	ErrBeingMoved = errors.New("the message is being moved from there")

	// ErrMoveTooOld says that ResumeMoves cannot tell whether a message has arrived in the
	// other topic and is done there, or was never stored.
	ErrMoveTooOld = errors.New("the move was interrupted too long ago to know whether the message has arrived; " +
		"it stays between the topics")
)

const (
	// moveSize is how many messages of a partition are between two topics at once.
	moveSize = 100

	// resumeAfter is after how long somebody else may go on with a move. A step has ended by
	// then.
	resumeAfter = 2 * stepTime

	// certainFor is for how long it is known whether a message has arrived. The rest of
	// queue.KeepMoved is for the clocks of two masters, and for the call itself.
	certainFor = queue.KeepMoved - 24*time.Hour
)

// Copy publishes messages in another topic of the prefix, which is made if it is missing:
// with the same payload, metadata, key and, if they are scheduled, due time; others are due
// at once. A message has the metadata that the last Nack left of the group that the query or
// Selection.Group names, if the Unmarshaler is a redisdelay.Marshaler.
//
// A copy has the id of its original, so a Copy that is repeated or continued within a day
// stores no message twice, not even one that is done by then: those are skipped
// (ErrStoredBefore). That does not hold if the other topic gets more partitions meanwhile. A message
// whose key is in use there is skipped, too (ErrKeyInUse). With a key, a message goes to the
// partition of that key, without one to the partition with its own number, modulo how many
// there are.
//
// A Query may be for any Set; the default is Scheduled. The error may be ErrSameTopic.
func (a *Admin) Copy(ctx context.Context, topic string, which Selection, to string, progress func(Progress)) (Progress, error) {
	t := a.transferTo(topic, to)
	return t.perform(ctx, which, t.copying(), progress)
}

// Move is Copy, and takes the messages out of the topic: a scheduled message, or one that
// waits for a group or is a dead letter of it, for that group alone. Messages in delivery
// stay. A message whose key is in use in the other topic stays, and keeps its own key unless
// another message has taken that meanwhile. So does one that was there before and is not there
// any more (ErrStoredBefore), or is on its way from there (ErrBeingMoved).
//
// It can be interrupted at any point: then each message is in one of the topics, or between
// them until ResumeMoves or the next Move from the topic, and is never delivered in both.
//
// A Query is for Scheduled, which is the default, for Waiting or for Dead.
func (a *Admin) Move(ctx context.Context, topic string, which Selection, to string, progress func(Progress)) (Progress, error) {
	t := a.transferTo(topic, to)
	return t.perform(ctx, which, t.moving(), progress)
}

// transfer is a Copy or Move between two topics.
type transfer struct {
	admin    *Admin
	from, to string
	topic    *queue.Topic // the other one
	number   int          // of its partitions
}

func (a *Admin) transferTo(from, to string) *transfer {
	return &transfer{admin: a, from: from, to: to, topic: a.store.Topic(to)}
}

// perform looks at both topics and then acts. A mistyped topic must not make the other.
func (t *transfer) perform(ctx context.Context, which Selection, what act, progress func(Progress)) (Progress, error) {
	if err := t.begin(ctx, which, what); err != nil {
		return Progress{}, leave(err, "%s from %q to %q", what.verb, t.from, t.to)
	}
	return t.admin.perform(ctx, t.from, which, what, progress)
}

func (t *transfer) begin(ctx context.Context, which Selection, what act) error {
	if err := which.validate(what); err != nil {
		return err
	}
	switch {
	case t.to == "":
		return redisdelay.ErrEmptyTopic
	case t.from == t.to:
		return ErrSameTopic
	}
	from, err := t.admin.open(ctx, t.from)
	if err != nil {
		return err
	}
	if t.number, err = opened(ctx, t.topic, 1); err != nil || what.verb != moving {
		return err
	}
	// What cannot be finished, to a topic that is damaged or away, must not hold up this move.
	// ResumeMoves returns the error.
	if _, err = t.admin.resume(ctx, from, nil); ctx.Err() != nil {
		return err
	}
	return nil
}

// opened makes a topic if it is missing, with so many partitions at least, and returns how many it
// has. It looks first: another process may have deleted a topic that this one knows.
func opened(ctx context.Context, t *queue.Topic, least int) (int, error) {
	if _, err := t.Version(ctx); err != nil && !errors.Is(err, ErrTopicNotFound) {
		return 0, err
	}
	if err := t.Enlist(ctx); err != nil {
		return 0, err
	}
	return t.Raise(ctx, least)
}

// target is the number of the partition that a message goes to.
func (t *transfer) target(id string, from *queue.Partition) int {
	if key := keyOf(id); key != "" {
		return queue.PartitionOf(key, t.number)
	}
	return from.Number() % t.number
}

// spread groups messages by the partition that they go to.
func spread[T any](list []T, target func(T) int) map[int][]T {
	groups := map[int][]T{}
	for _, one := range list {
		n := target(one)
		groups[n] = append(groups[n], one)
	}
	return groups
}

// reencoded is a body with the metadata that a Nack has left; as it was, if there are none or
// the Unmarshaler cannot encode.
func (a *Admin) reencoded(from, to string, body, metadata []byte) []byte {
	marshaler, can := a.unmarshaler.(redisdelay.Marshaler)
	if !can || len(metadata) == 0 {
		return body
	}
	c := a.content(from, body, metadata)
	if c.Err != nil {
		return body
	}
	encoded, err := marshal(marshaler, to, c.Message)
	if err != nil {
		return body
	}
	return encoded
}

// refusal is why a message was not stored; nil if it was.
func refusal(outcome queue.Outcome) error {
	switch outcome {
	case queue.OutcomeStored:
		return nil
	case queue.OutcomeKnown, queue.OutcomePast:
		return ErrStoredBefore
	case queue.OutcomeTaken:
		return ErrKeyInUse
	case queue.OutcomeMoving:
		return ErrBeingMoved
	default:
		return ErrMoveTooOld
	}
}
