package admin

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/components/delay"
)

// Selection says which messages of a topic an act is for: those with the IDs and Keys, or all
// that a query matches. Exactly one of the two must be given.
type Selection struct {
	IDs, Keys []string
	Group     string // with IDs or Keys: for acts on dead letters, and Bury; "": all groups
	Matching  *Query // its Limit is ignored
}

// Progress is how far an act on many messages has come.
type Progress struct {
	Done    int    // messages that were changed
	Skipped int    // messages that were looked at and left: gone, not in the right place, or a key in use
	Last    error  // why the last one was skipped; nil if none was
	Cursor  string // Query.Cursor to go on from here
}

// Acts on a Selection go in steps of at most 1,000 messages. After each, they tell progress,
// which may be nil, how far they have come. They end with ctx, between two steps, and return
// what was done. With a Query, an act is for what matched when it began: it ends, even if
// messages come back to where they were. It may be repeated, or continued from a cursor.
//
// The errors of all acts are those of Entries.

// Cancel takes messages back from all groups that wait for them or handle them, as
// redisdelay.Publisher.Cancel does. Dead letters stay. With a Query in Scheduled and a range
// of time, it purges what is due then.
func (a *Admin) Cancel(ctx context.Context, topic string, which Selection, progress func(Progress)) (Progress, error) {
	return Progress{}, errNotBuilt
}

// Reschedule gives messages that wait, for their due time or a retry, a new due time: a time
// from now, by Redis's clock, that is the same for all. Those that a handler has stay, and
// dead letters do.
func (a *Admin) Reschedule(ctx context.Context, topic string, which Selection, to delay.Delay, progress func(Progress)) (Progress, error) {
	return Progress{}, errNotBuilt
}

// DeliverNow makes messages that wait due now.
func (a *Admin) DeliverNow(ctx context.Context, topic string, which Selection, progress func(Progress)) (Progress, error) {
	return a.Reschedule(ctx, topic, which, delay.For(0), progress)
}

// Requeue makes dead letters due again and counts their deliveries from 1. A requeued message
// holds no key. With a Query, those that fail again meanwhile stay dead.
func (a *Admin) Requeue(ctx context.Context, topic string, which Selection, progress func(Progress)) (Progress, error) {
	return Progress{}, errNotBuilt
}

// Discard removes dead letters for good.
func (a *Admin) Discard(ctx context.Context, topic string, which Selection, progress func(Progress)) (Progress, error) {
	return Progress{}, errNotBuilt
}

// Bury makes messages that wait for a group, or are in delivery, dead letters of it. A
// handler at work learns it at its next heartbeat. The reason must not be empty.
func (a *Admin) Bury(ctx context.Context, topic string, which Selection, reason string, progress func(Progress)) (Progress, error) {
	return Progress{}, errNotBuilt
}

// DeleteTopic removes a topic with all its messages, dead letters, groups and settings, and
// takes it off the list. confirm must be its name again (ErrNotConfirmed). It refuses while
// consumers are alive (redisdelay.ErrGroupAlive). A program that still publishes makes the
// topic anew.
func (a *Admin) DeleteTopic(ctx context.Context, topic, confirm string) error { return errNotBuilt }

// DeleteTopicForced is DeleteTopic of a topic that may have consumers that are alive. They go
// on with what they hold and get nothing more.
func (a *Admin) DeleteTopicForced(ctx context.Context, topic, confirm string) error {
	return errNotBuilt
}
