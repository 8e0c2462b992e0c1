// Package observe defines the events that a Publisher, a Subscriber and the other packages report, for logs, metrics
// and traces.
package observe

import "time"

// Observer receives events. A nil function is not called and costs nothing. The functions are called synchronously,
// from many goroutines at once. They must return quickly, must not block or panic, and must not keep a slice that they
// are given. They must not call PublishAsync, Flush or Close, because these may wait for the function that called them.
// For the same reason, Failed, OutageBegan and OutageEnded must not publish to the topic of the event.
type Observer struct {
	Published   func(Published)   // a Publish or PublishAsync call has ended
	Changed     func(Changed)     // a Cancel or Reschedule call has ended
	Claimed     func(Claimed)     // a subscription has leased messages
	HandedOut   func(HandedOut)   // a handler has been given a message
	Settled     func(Settled)     // a delivery has ended
	Buried      func(Buried)      // a message has become a dead letter
	LeaseLost   func(LeaseLost)   // a consumer no longer holds a message
	Ended       func(Ended)       // a consumer group without a live subscription has ended
	Recreated   func(Recreated)   // a subscription has recreated its expired group
	Ticked      func(Ticked)      // ticks of a schedule were stored ahead, or missed (package periodic)
	Called      func(Called)      // a script call has ended, with or without an answer
	Failed      func(Failed)      // an attempt has failed
	OutageBegan func(OutageBegan) // an activity has begun to fail
	OutageEnded func(OutageEnded) // an activity that failed works again, or has ended
}

// Place is where an event happened.
type Place struct {
	Topic     string
	Group     string // empty for a Publisher
	Partition int    // -1 for the topic as a whole
}

// Published is the end of a Publish or PublishAsync call. Calls without messages, after Close, or with an invalid delay
// or key are not reported, nor are calls with a message that cannot be encoded or is too large. One goroutine reports
// the PublishAsync calls that were sent, in the order in which they end. They count for MaxPending until the Observer
// has returned.
type Published struct {
	Topic    string
	Messages int
	// Ignored has the keys of those messages that were dropped because their keys are in use
	// (redisdelay.IgnoreDuplicate), one for each message. They are no error for the caller.
	Ignored []string
	Took    time.Duration
	Err     error // as returned to the caller; nil if all messages are stored, except those Ignored
}

// Changed is the end of a Cancel or Reschedule call. A call after Close, or with an invalid key or delay, is not
// reported.
type Changed struct {
	Topic string
	Key   string
	ID    string // of the message with the key; empty if there was none, or it is not known
	How   Change
	Err   error // as returned to the caller; nil if something has changed
}

// Change is the kind of a Changed event.
type Change string

// The calls that Changed reports.
const (
	Canceled    Change = "cancel"
	Rescheduled Change = "reschedule"
)

// Claimed is a claim that leased messages to a subscription.
type Claimed struct {
	Place
	IDs   []string
	Bytes int
}

// HandedOut is the start of a delivery: a handler has the message.
type HandedOut struct {
	Place
	ID      string
	Token   int64 // names the delivery; see redisdelay.Delivery
	Attempt int
	Late    time.Duration // since it was due, by Redis's clock; negative if early
}

// Settled is the end of a delivery. It is recorded in Redis, unless How is Unsettled. It is reported once for each
// Claimed message, except messages whose Unmarshaler never returns.
type Settled struct {
	Place
	ID    string
	Token int64 // names the delivery; see redisdelay.Delivery
	How   Settlement
	// Took is how long a handler had the message. An Unsettled delivery has 0 only if no handler had it.
	Took time.Duration
	// RetryIn is, after Nacked and Deferred, how long until the message is due again; 0 if it
	// became a dead letter (Buried) or the nack was Stale.
	RetryIn time.Duration
	// Error is the recorded error of the handler (redisdelay.RecordErrors); "" if there is none.
	Error string
	// Stale says that the settlement had no effect: another consumer has claimed the message since, or it was settled
	// or cancelled before. After a stale Ack, the message may be delivered again although its handler has succeeded.
	// Stale is also true if a reply was lost and the call was repeated.
	Stale bool
}

// Settlement is how a delivery has ended.
type Settlement string

// How a delivery ends.
const (
	Acked           Settlement = "ack"
	Nacked          Settlement = "nack"
	Deferred        Settlement = "defer"       // postponed by its handler (Delivery.Defer), without a failure
	BuriedByHandler Settlement = "bury"        // its handler has made it a dead letter (Delivery.Bury); Buried is reported as well
	Released        Settlement = "release"     // returned to the queue; no handler has seen it
	Abandoned       Settlement = "abandon"     // its handler has not returned within CloseTimeout
	Undecodable     Settlement = "undecodable" // no handler has seen it; Buried is reported as well
	// Expired is a message that expired before a handler had it (redisdelay.SetExpiration). Buried is reported as well,
	// unless the message was dropped.
	Expired Settlement = "expired"
	// Unsettled is a delivery whose outcome may not have reached Redis before the subscription ended. If it has not,
	// the message is delivered again after its lease.
	Unsettled Settlement = "unsettled"
)

// Buried is a message that has become a dead letter.
type Buried struct {
	Place
	ID     string
	Reason string
}

// LeaseLost is a message that its consumer no longer holds: another consumer may have claimed it, it was cancelled, or
// its group was retired.
type LeaseLost struct {
	Place
	ID        string
	Token     int64 // names the delivery; see redisdelay.Delivery
	Attempt   int
	HandedOut bool // a handler has it; the context of its message has ended
}

// Ended is a consumer group that has expired without a live subscription. Any publisher or
// subscription of the topic may end it. Each partition ends it separately, so several processes may
// report it, and more than once.
type Ended struct {
	Place     // of the group; Partition is -1
	Freed int // messages of the group that this process freed
}

// Recreated is a group that its subscription has recreated: the group had expired because this subscription stalled, or
// Redis had lost it. Messages that became due meanwhile are lost to the group. It is reported once for all partitions;
// Partition is -1.
type Recreated struct{ Place }

// Ticked is reported by package periodic when a process has stored ticks of a schedule ahead, or has found missed
// ticks. Each tick is reported once, unless the process ends in between.
type Ticked struct {
	Topic    string
	Schedule string
	Stored   int
	Missed   int // ticks that were missed and are not made up for
}

// Called is one script call to Redis. Partition is -1 for a call that concerns no partition, such as a change of the
// list of topics.
type Called struct {
	Topic     string
	Partition int
	Script    string // its name in docs/inside/protocol.md
	Took      time.Duration
	Err       error
}

// Failed is a failed attempt. It is retried, except for Decoding and Retrying.
type Failed struct {
	Place
	What Activity
	ID   string // of the message, if What is Decoding or Retrying
	Err  error
}

// OutageBegan is the first failure of an activity in a place. OutageEnded follows, once; failures
// between them are reported only to Failed. A retired group is an outage of Claiming, with
// Partition -1. Decoding and Retrying concern one message, and have no outages.
type OutageBegan struct {
	Place
	What   Activity
	Err    error // of the first attempt that failed
	Others int   // in how many other places this activity of the same Publisher or subscription fails
}

// OutageEnded is the end of an outage: the activity works again or, if Stopped, is no longer tried, because nothing is
// left to do or the Publisher or subscription has ended.
type OutageEnded struct {
	Place
	What    Activity
	After   time.Duration // since the outage began
	Others  int           // in how many other places this activity of the same Publisher or subscription still fails
	Stopped bool
}

// Activity is a kind of work of a Publisher or a subscription that can fail.
type Activity string

// What may fail.
const (
	Publishing Activity = "publish"
	Claiming   Activity = "claim"
	Settling   Activity = "settle"
	Extending  Activity = "extend"
	Listening  Activity = "listen" // for notifications; polls go on
	Growing    Activity = "grow"   // looking for new partitions
	Ending     Activity = "end"    // ending groups that have expired

	// These concern one message and are not retried:
	Decoding Activity = "decode" // it becomes a dead letter
	// Retrying is choosing the delay of a nacked message, or storing its changed metadata. After invalid delay
	// metadata, NackDelay applies; after a panic in NackDelay, its default. Metadata that is too large is dropped.
	Retrying Activity = "retry"
)
