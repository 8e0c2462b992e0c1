// Package observe is where a Publisher and a Subscriber tell what happens to messages:
// the one seam for logs, metrics and traces.
package observe

import "time"

// Observer is told what happens. A nil function is not called and costs nothing. The
// functions are called where things happen, from many goroutines at once: they must be
// quick, must not block or panic, and must not keep a slice that they are given.
type Observer struct {
	Published func(Published) // a Publish call has ended
	Changed   func(Changed)   // a Cancel or Reschedule call has ended
	Claimed   func(Claimed)   // a subscription has leased messages
	HandedOut func(HandedOut) // a handler has been given a message
	Settled   func(Settled)   // Redis knows what has become of a delivery
	Buried    func(Buried)    // a message has become a dead letter
	LeaseLost func(LeaseLost) // a consumer no longer holds a message
	Called    func(Called)    // Redis has answered a script call, or has not
	Failing   func(Failing)   // something has failed (see Activity)
	Recovered func(Recovered) // what failed works again
}

// Place is where something happens.
type Place struct {
	Topic     string
	Group     string // empty for a Publisher
	Partition int    // -1: the topic as a whole
}

// Published is the end of a Publish call. A call whose arguments are at fault is not told:
// a delay or a key that cannot be used, a message that cannot be encoded or is too large.
type Published struct {
	Topic    string
	Messages int
	Took     time.Duration
	Err      error // as the caller gets it; nil: all are stored
}

// Changed is the end of a Cancel or Reschedule call. A call with a key or a delay that
// cannot be used is not told.
type Changed struct {
	Topic string
	Key   string
	How   Change
	Err   error
}

// Change says what was asked for.
type Change string

// What a caller may ask for.
const (
	Cancelled   Change = "cancel"
	Rescheduled Change = "reschedule"
)

// Claimed is a claim that got messages.
type Claimed struct {
	Place
	IDs   []string
	Bytes int
}

// HandedOut is a message that a handler has been given.
type HandedOut struct {
	Place
	ID      string
	Attempt int
	Late    time.Duration // since it was due, by Redis's clock; below 0 would be early
}

// Settled is a delivery that has ended. It is told once for each message that was Claimed,
// unless Redis cannot be reached before the subscription ends.
type Settled struct {
	Place
	ID  string
	How Settlement
	// Took is how long a handler had the message, 0 if none had.
	Took time.Duration
	// RetryIn is, after Nacked, how long until the message is due again; 0 if it became a
	// dead letter (Buried) or Stale.
	RetryIn time.Duration
	// Stale says that the delivery was not the current one any more, so that nothing has
	// changed. It says so too when a reply was lost and the call was made again.
	Stale bool
}

// Settlement says how a delivery has ended.
type Settlement string

// How a delivery ends.
const (
	Acked       Settlement = "ack"
	Nacked      Settlement = "nack"
	Released    Settlement = "release"     // given back, no handler has seen it
	Abandoned   Settlement = "abandon"     // its handler has outlasted CloseTimeout
	Undecodable Settlement = "undecodable" // no handler has seen it; Buried is told as well
)

// Buried is a message that has become a dead letter.
type Buried struct {
	Place
	ID     string
	Reason string
}

// LeaseLost is a message that its consumer no longer holds: another consumer may have it,
// or it was cancelled, or its group was retired.
type LeaseLost struct {
	Place
	ID        string
	Attempt   int
	HandedOut bool // a handler has it; the context of its message has ended
}

// Called is one script call to Redis.
type Called struct {
	Topic     string
	Partition int
	Script    string // its name in docs/protocol.md
	Took      time.Duration
	Err       error
}

// Failing is something that has failed (see Activity). Each failure is told.
type Failing struct {
	Place
	What Activity
	ID   string // of the message, if What is Decoding or Retrying
	Err  error
}

// Recovered is something that works again.
type Recovered struct {
	Place
	What  Activity
	After time.Duration // since it began to fail; 0 if that is not known
}

// Activity is what a Publisher or a subscription does all the time.
type Activity string

// What may fail.
const (
	Publishing Activity = "publish"
	Claiming   Activity = "claim"
	Settling   Activity = "settle"
	Extending  Activity = "extend"
	Listening  Activity = "listen" // for notifications; polls go on
	Growing    Activity = "grow"   // looking for new partitions

	// About one message, and not tried again:
	Decoding Activity = "decode" // it becomes a dead letter
	// Retrying is choosing a nacked message's delay, or keeping its metadata: NackDelay
	// counts, or its default if it panics; metadata that are too large are dropped and the
	// delay stays.
	Retrying Activity = "retry"
)
