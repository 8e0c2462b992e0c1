// Package observe defines the events that a Publisher, a Subscriber and the other packages report, for logs, metrics
// and traces.
package observe

import "time"

// Observer receives events. A nil function is not called and costs nothing. The functions are called from many
// goroutines at once, which wait for them, so they must be quick. They must not panic, keep a slice of an event, or
// call PublishAsync, Flush or Close, which may wait for the function. For the same reason, Failed, OutageBegan and
// OutageEnded must not publish to the topic of the event.
type Observer struct {
	Published      func(Published)      // a Publish or PublishAsync call has ended
	Changed        func(Changed)        // a Cancel or Reschedule call has ended
	Claimed        func(Claimed)        // a subscription has leased messages
	Delivered      func(Delivered)      // a handler has been given a message
	Settled        func(Settled)        // a delivery has ended
	Buried         func(Buried)         // a message was dead-lettered
	LeaseLost      func(LeaseLost)      // a consumer no longer holds a message
	GroupExpired   func(GroupExpired)   // a consumer group without a live subscription has ended
	GroupRecreated func(GroupRecreated) // a subscription has recreated its expired group
	Ticked         func(Ticked)         // ticks of a schedule were stored ahead, or missed (package periodic)
	Called         func(Called)         // a script call has ended, with or without an answer
	Failed         func(Failed)         // an attempt has failed
	OutageBegan    func(OutageBegan)    // an activity has begun to fail
	OutageEnded    func(OutageEnded)    // an activity that failed works again, or has ended
}

// Place is where an event happened.
type Place struct {
	Topic     string
	Group     string // empty for a Publisher
	Partition int    // -1 for the topic as a whole
}

// Published is the end of a Publish or PublishAsync call. Calls that end before they are sent are not reported: those
// without messages, with an invalid message, or after Close. One goroutine reports PublishAsync calls, in the order in
// which they end.
type Published struct {
	Topic    string
	Messages int
	// Ignored has the key of each message that was dropped as a duplicate (redisdelay.IgnoreDuplicate), which is no
	// error.
	Ignored []string
	Took    time.Duration
	Err     error // as returned to the caller; nil if all messages are stored, except those Ignored
}

// Changed is the end of a Cancel or Reschedule call. A call after Close, or with an invalid argument, is not reported.
type Changed struct {
	Topic  string
	Key    string
	ID     string // of the message with the key; "" if there was none, or it is unknown
	Change Change // the call: Cancelled or Rescheduled
	Err    error  // as returned to the caller; nil if a message was changed
}

// Change is which call a Changed event reports.
type Change string

// The calls that Changed reports.
const (
	Cancelled   Change = "cancel"
	Rescheduled Change = "reschedule"
)

// Claimed is a call that leased messages to a subscription.
type Claimed struct {
	Place
	IDs   []string
	Bytes int
}

// Delivered is the start of a delivery: a handler has the message.
type Delivered struct {
	Place
	ID       string
	Token    int64 // names the delivery; see redisdelay.Delivery
	Attempt  int
	Lateness time.Duration // since it was due, by Redis's clock; negative if early
}

// Settled is the end of a delivery. It is reported once for each message of a Claimed event, unless its Unmarshaler
// hangs. Redis has recorded it, unless Settlement is Unsettled.
type Settled struct {
	Place
	ID         string
	Token      int64 // names the delivery; see redisdelay.Delivery
	Settlement Settlement
	// Took is how long a handler had the message. An Unsettled delivery has 0 only if no handler had it.
	Took time.Duration
	// RetryIn is, after Nacked and Deferred, how long until the message is due; 0 if it is dead or Stale.
	RetryIn time.Duration
	// Error is the recorded error of the handler (redisdelay.RecordErrors); "": none.
	Error string
	// Stale says that the settlement had no effect, because another consumer has claimed the message, or it was settled
	// or cancelled. After a stale Ack, the message may be delivered again. Stale is also true if a lost reply made
	// go-redis repeat the call.
	Stale bool
}

// Settlement is how a delivery has ended.
type Settlement string

// The settlements of deliveries.
const (
	Acked           Settlement = "ack"
	Nacked          Settlement = "nack"
	Deferred        Settlement = "defer"       // postponed by its handler (Delivery.Defer), without a failure
	BuriedByHandler Settlement = "bury"        // made a dead message by its handler (Delivery.Bury); Buried is reported as well
	Released        Settlement = "release"     // returned to the queue; no handler has seen it
	Abandoned       Settlement = "abandon"     // its handler has not returned within CloseTimeout
	Undecodable     Settlement = "undecodable" // no handler has seen it; Buried is reported as well
	// Expired is a message that expired before a handler had it (redisdelay.SetExpiration). Buried is reported as well,
	// unless the message was dropped.
	Expired Settlement = "expired"
	// Unsettled is a delivery that ended while Redis was unreachable, before the end of the subscription. If Redis has
	// not recorded it, the message is delivered again after its lease.
	Unsettled Settlement = "unsettled"
)

// Buried is a message that was dead-lettered.
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
	Delivered bool // a handler has it; the context of its message has ended
}

// GroupExpired is a consumer group that expired without a live subscription. Any publisher or subscription of the topic may
// end it, in each partition separately, so several processes may report it, more than once.
type GroupExpired struct {
	Place     // of the group; Partition is -1
	Freed int // messages of the group that this process freed
}

// GroupRecreated is a group that its subscription has recreated, because it had expired while the subscription stalled, or
// Redis had lost it. The group has lost the messages that became due meanwhile. It is reported once; Partition is -1.
type GroupRecreated struct{ Place }

// Ticked is reported by package periodic when a process has stored ticks of a schedule ahead, or found missed ticks.
// Each tick is reported once, unless the process ends in between.
type Ticked struct {
	Topic    string
	Schedule string
	Stored   int
	Missed   int // missed ticks that are not made up for (periodic.Schedule.CatchUp)
}

// Called is one script call to Redis. Partition is -1 for a call that concerns no partition.
type Called struct {
	Topic     string
	Partition int
	Script    string // its name in docs/inside/protocol.md
	Took      time.Duration
	Err       error
}

// Failed is a failed attempt, which is retried except for Decoding and Redelivering. Its number depends on how often the
// retries happen, so count OutageBegan to count incidents.
type Failed struct {
	Place
	Activity Activity
	ID       string // of the message, if Activity is Decoding or Redelivering
	Err      error
}

// OutageBegan is the first failure of an activity in a place. OutageEnded follows once. The failures in between are
// reported only to Failed. A retired group is an outage of Claiming, with Partition -1.
type OutageBegan struct {
	Place
	Activity Activity
	Err      error // of the first attempt that failed
	Others   int   // other places in which this activity of the Publisher or subscription fails; a log may report only the first
}

// OutageEnded is the end of an outage: the activity works again or, if Stopped, is no longer attempted, for example
// because the subscription has ended.
type OutageEnded struct {
	Place
	Activity Activity
	After    time.Duration // since the outage began
	Others   int           // other places in which it still fails
	Stopped  bool
}

// Activity is work of a Publisher or a subscription that can fail.
type Activity string

// Activities that may fail.
const (
	Publishing         Activity = "publish"
	Claiming           Activity = "claim"
	Settling           Activity = "settle"
	Extending          Activity = "extend"           // heartbeats: extending leases
	Listening          Activity = "listen"           // receiving notifications; the subscription polls instead
	CheckingPartitions Activity = "check-partitions" // checking for new partitions
	ExpiringGroups     Activity = "expire-groups"    // ending expired groups

	// These concern one message and are not retried:
	Decoding Activity = "decode" // it is dead-lettered
	// Redelivering is choosing the delay of a nacked message, or storing its changed metadata. After invalid delay
	// metadata, NackDelay applies; after a panic in NackDelay, its default. Metadata that is too large is dropped.
	Redelivering Activity = "redeliver"
)
