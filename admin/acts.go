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
	// one only after the act had begun.
	ErrNotDead = errors.New("the message is not a dead letter that was there when this began")

	// ErrNotWaiting says that a message does not wait for any of the groups in question, or no
	// longer for the time that was seen.
	ErrNotWaiting = errors.New("the message does not wait")
)

// ErrInvalidReason is returned by Bury for a reason that is empty, is not UTF-8, or is longer
// than redisdelay.MaxReasonBytes.
var ErrInvalidReason = errors.New("invalid reason")

// Selection says which messages of a topic an act is for: those with the IDs and Keys, or all
// that a query matches. Exactly one of the two must be given; otherwise the error is a
// *QueryError.
type Selection struct {
	IDs, Keys []string
	Group     string // with IDs or Keys, for Requeue, Discard and Bury: only of this group; "": of all
	Matching  *Query // its Limit is ignored, and the default of In is what the act is for
}

// Progress is how far an act on many messages has come. With a Query, each message counts once
// for each group, as an Entry does; with IDs and Keys it counts once.
type Progress struct {
	Done    int    // messages that were changed
	Skipped int    // messages that were looked at and left: gone, not in the right place, or a key in use
	Last    error  // why the last one was skipped; nil if none was
	Cursor  string // with a Query: its Cursor to go on from here; "" at the end
}

// Acts on a Selection go in steps of at most 1,000 messages. After each that was for some, they
// tell progress, which may be nil, how far they have come. They end with ctx, between two
// steps, and return what was done. With a Query, an act is for what matched when it began, and
// goes no further than the last of those times: it ends, even if messages come, or come back, all
// the time. One that gets a later time before the act has come to it is left alone, such as a
// lease that is extended; one that comes meanwhile with an earlier time may be included. An act
// may be repeated, or continued from the Cursor of its Progress, as the same act. With IDs and
// Keys, it goes through the IDs and then the Keys, in their order, and each counts once.
//
// The errors of all acts are those of Entries. After an error, the Progress is what was done
// for certain.

// Cancel takes messages back from all groups that wait for them or handle them, as
// redisdelay.Publisher.Cancel does. Dead letters stay. With a Query, which is for Scheduled by
// default, and a range of time, it purges what is due then.
func (a *Admin) Cancel(ctx context.Context, topic string, which Selection, progress func(Progress)) (Progress, error) {
	return a.perform(ctx, topic, which, cancelling(), progress)
}

// Reschedule gives messages that wait, for their due time or a retry, a new due time: a time
// from now, by the clock of the Redis that has the first partition, that is the same for
// all, also for what is continued from a Cursor. Those that a handler has stay, and dead
// letters do. A Query is for Scheduled, which is the default, or for Waiting. The error may be
// a *redisdelay.DelayError, too.
func (a *Admin) Reschedule(ctx context.Context, topic string, which Selection, to delay.Delay, progress func(Progress)) (Progress, error) {
	remaining, err := remainingOf(to)
	if err != nil {
		return Progress{}, leave(err, "reschedule in %q", topic)
	}
	return a.perform(ctx, topic, which, rescheduling(remaining), progress)
}

// DeliverNow makes messages that wait due now.
func (a *Admin) DeliverNow(ctx context.Context, topic string, which Selection, progress func(Progress)) (Progress, error) {
	return a.Reschedule(ctx, topic, which, delay.For(0), progress)
}

// Requeue makes dead letters due again and counts their deliveries from 1. A requeued message
// holds no key; redisdelay.Publisher.Cancel and Reschedule find it by the key that it had until
// another message takes that. Those that fail again meanwhile stay dead. A Query is for Dead.
func (a *Admin) Requeue(ctx context.Context, topic string, which Selection, progress func(Progress)) (Progress, error) {
	return a.perform(ctx, topic, which, requeueing(), progress)
}

// Discard removes dead letters for good: those that were there when it began. A Query is for
// Dead.
func (a *Admin) Discard(ctx context.Context, topic string, which Selection, progress func(Progress)) (Progress, error) {
	return a.perform(ctx, topic, which, discarding(), progress)
}

// Bury makes messages that wait for a group, or are in delivery, dead letters of it. A
// handler at work learns it at its next heartbeat (redisdelay.ErrLeaseLost). Messages that no
// group has been given yet are skipped. A Query is for Waiting, which is the default, or
// for InDelivery. The reason has 1 to redisdelay.MaxReasonBytes bytes (ErrInvalidReason).
func (a *Admin) Bury(ctx context.Context, topic string, which Selection, reason string, progress func(Progress)) (Progress, error) {
	reason = strings.TrimSpace(reason)
	if n := len(reason); n == 0 || n > redisdelay.MaxReasonBytes || !utf8.ValidString(reason) {
		err := fmt.Errorf("%w: it has %d bytes, want 1 to %d of UTF-8", ErrInvalidReason, n, redisdelay.MaxReasonBytes)
		return Progress{}, leave(err, "bury in %q", topic)
	}
	return a.perform(ctx, topic, which, burying(reason), progress)
}
