package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/components/delay"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// Why a message is skipped, besides ErrMessageNotFound and redisdelay.ErrMessageDead.
var (
	// ErrNotDead says that a message is not a dead letter of the groups in question, or became
	// one only after the operation had begun.
	ErrNotDead = errors.New("the message is not a dead letter that was there when this began")

	// ErrNotWaiting says that a message does not wait for any of the groups in question, or no
	// longer for the time that was seen.
	ErrNotWaiting = errors.New("the message does not wait")
)

// ErrInvalidReason is returned by Bury for a reason that is empty, is not UTF-8, or is longer
// than redisdelay.MaxReasonBytes.
var ErrInvalidReason = errors.New("invalid reason")

// Selection says which messages of a topic a bulk operation is for: those that ByID or ByKey
// names, or all that a Query matches. The zero value is none.
//
// A bulk operation works in steps of at most 1,000 messages. After each step that was for some, it
// reports its Progress, unless progress is nil. It ends with ctx, between two steps, and returns
// what was done. The error is as for Entries; after one, the Progress is what was done for certain.
//
// With a Query, the operation is for what matched when it began, and goes no further than the
// last of those times: it ends, even if messages come, or come back, all the time. Messages whose
// time moves later while it runs are skipped, such as a lease that is extended; messages that come
// meanwhile with an earlier time may be included. The operation may be repeated, or continued
// from the Cursor of its Progress, as the same operation.
//
// With ByID and ByKey, it goes through the messages in the order given, and each counts once.
type Selection struct {
	ids, keys []string
	group     string // with ids or keys; "": all
	query     *Query
}

// ByID selects messages by their ids.
func ByID(ids ...string) Selection { return Selection{ids: ids} }

// ByKey selects messages by their keys, as Ref.Key does.
func ByKey(keys ...string) Selection { return Selection{keys: keys} }

// Matching selects all messages that a query matches. Its Limit does not count, and the default of
// its In is what the operation is for.
func Matching(q Query) Selection { return Selection{query: &q} }

// OfGroup limits a selection to one group. By id or key, that is for operations on groups:
// Requeue, Discard, Bury, Copy and Move.
func (s Selection) OfGroup(group string) Selection {
	if s.query == nil {
		s.group = group
		return s
	}
	q := *s.query
	q.Group = group
	return Matching(q)
}

// Progress is how far a bulk operation has come. With a Query, each message counts once for each
// group, as an Entry does; with ids and keys it counts once.
type Progress struct {
	Done    int    // messages that were changed
	Skipped int    // messages that were looked at and left: gone, not in the right place, or a key in use
	Last    error  // why the last one was skipped; nil if none was
	Cursor  string // with a Query: its Cursor to go on from here; "" at the end
}

// Cancel takes messages back from all groups that wait for them or handle them, as
// redisdelay.Publisher.Cancel does. Dead letters stay. With a Query, which is for Scheduled by
// default, and a range of time, it purges what is due then. It is a bulk operation: see Selection.
func (a *Admin) Cancel(ctx context.Context, topic string, which Selection, progress func(Progress)) (Progress, error) {
	return a.run(ctx, topic, which, cancelOperation(), progress)
}

// Reschedule gives messages that wait, for their due time or a retry, a new due time: a time
// from now, by the clock of the Redis that has the first partition, that is the same for
// all, also for what is continued from a Cursor. Those that a handler has stay, and dead
// letters do. A Query is for Scheduled, which is the default, or for Waiting. The error may be
// a *redisdelay.DelayError, too. It is a bulk operation: see Selection.
func (a *Admin) Reschedule(ctx context.Context, topic string, which Selection, to delay.Delay, progress func(Progress)) (Progress, error) {
	remaining, err := remainingOf(to)
	if err != nil {
		return Progress{}, wrap(err, "reschedule in %q", topic)
	}
	return a.run(ctx, topic, which, rescheduleOperation(remaining), progress)
}

// DeliverNow makes messages that wait due now. It is a bulk operation: see Selection.
func (a *Admin) DeliverNow(ctx context.Context, topic string, which Selection, progress func(Progress)) (Progress, error) {
	return a.Reschedule(ctx, topic, which, delay.For(0), progress)
}

// Requeue makes dead letters due again and counts their deliveries from 1. A requeued message
// holds no key; redisdelay.Publisher.Cancel and Reschedule find it by the key that it had until
// another message takes that. Those that fail again meanwhile stay dead. A Query is for Dead. It is
// a bulk operation: see Selection.
func (a *Admin) Requeue(ctx context.Context, topic string, which Selection, progress func(Progress)) (Progress, error) {
	return a.run(ctx, topic, which, requeueOperation(), progress)
}

// Discard removes dead letters for good: those that were there when it began. A Query is for
// Dead. It is a bulk operation: see Selection.
func (a *Admin) Discard(ctx context.Context, topic string, which Selection, progress func(Progress)) (Progress, error) {
	return a.run(ctx, topic, which, discardOperation(), progress)
}

// Bury makes messages that wait for a group, or are in delivery, dead letters of it. A
// handler at work learns it at its next heartbeat (redisdelay.ErrLeaseLost). Messages that no
// group has been given yet are skipped. A Query is for Waiting, which is the default, or
// for InDelivery. The reason has 1 to redisdelay.MaxReasonBytes bytes (ErrInvalidReason). It is a
// bulk operation: see Selection.
func (a *Admin) Bury(ctx context.Context, topic string, which Selection, reason string, progress func(Progress)) (Progress, error) {
	reason = strings.TrimSpace(reason)
	if n := len(reason); n == 0 || n > redisdelay.MaxReasonBytes || !utf8.ValidString(reason) {
		err := fmt.Errorf("%w: it has %d bytes, want 1 to %d of UTF-8", ErrInvalidReason, n, redisdelay.MaxReasonBytes)
		return Progress{}, wrap(err, "bury in %q", topic)
	}
	return a.run(ctx, topic, which, buryOperation(reason), progress)
}
