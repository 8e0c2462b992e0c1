package sim

import (
	"slices"
	"time"
)

// Plan describes a simulation. A profile makes a plan from a seed.
type Plan struct {
	Profile  string
	Duration time.Duration // until faults and publishing end

	Partitions    int
	Raise         int // partitions that are added one by one
	Lease         time.Duration
	Poll          time.Duration
	CloseTimeout  time.Duration
	MaxDeliveries int

	Groups     []GroupPlan
	Publishers []PublisherPlan
	Operator   OperatorPlan
	Faults     Faults

	// Strict says that no faults occur, so that every bound always holds.
	Strict bool
}

// GroupPlan is a consumer group.
type GroupPlan struct {
	Name      string
	Joins     time.Duration // when its first consumer starts
	Consumers []ConsumerPlan
}

// ordered reports whether the group gets its messages in order.
func (p *Plan) ordered(g GroupPlan) bool {
	f := p.Faults
	crashes := f.Killed+f.Stopped+f.Leaves > 0
	lines := slices.ContainsFunc(p.Publishers, func(pub PublisherPlan) bool { return pub.Lines > 0 })
	return !lines && len(g.Consumers) == 1 && g.Consumers[0].MaxInFlight == 1 && p.Partitions+p.Raise == 1 && !crashes
}

// ConsumerPlan is the plan of a consumer and of its replacements.
type ConsumerPlan struct {
	MaxInFlight int
	Readers     int     // goroutines that read the channel and handle inline
	Nacks       float64 // chance that a handler fails
	Pauses      float64 // chance that a reader stops reading for a while after a message
	Paces       []Pace  // in turns
}

// Pace is the speed of handlers for a while.
type Pace struct {
	For      time.Duration
	Min, Max time.Duration // how long a handler takes
	// Blocked handlers end with the behavior, if that is later.
	Blocked bool
}

// PublisherPlan is a publisher.
type PublisherPlan struct {
	From               time.Duration
	MinGap, MaxGap     time.Duration // between two calls
	MinBatch, MaxBatch int           // messages of a call
	Delayed            float64       // chance that a call is delayed, by up to MostDelay
	MaxDelay           time.Duration
	Slow               float64 // chance that a message takes Slowness to handle
	Slowness           time.Duration
	Killers            float64 // chance that a message kills its consumer at once
	Large              float64 // chance that a message has LargeBytes
	LargeBytes         int
	First              []Scripted // its first calls
	Keyed              float64    // chance that a message has a key
	Keys               int        // how many different keys there are
	Lines              int        // how many different ordering keys there are; 0: messages have none
	Changes            float64    // chance that a Cancel or Reschedule follows a call
	Partitions         int        // number of partitions that it raises to; 0: it does not
	PublishTimeout     time.Duration
	DuplicatePolicy    string
}

// Scripted is a Publish call at a given time.
type Scripted struct {
	At    time.Duration
	Count int           // messages
	Slow  time.Duration // how long the handler takes
}

// OperatorPlan is how an operator changes groups from time to time.
type OperatorPlan struct {
	Every       time.Duration // about how often; 0: never
	Pauses      float64       // weights: pausing and resuming
	Limits      float64
	Retirements float64 // and restoring
}

// Faults are the faults of a plan.
type Faults struct {
	Latency time.Duration // one way, at most

	Every      time.Duration // about how often there is a fault
	Storms     float64       // weights of the kinds: calls of a process are lost
	Stalls     float64       // a partition hangs
	Refusals   float64       // calls of a process are refused
	Deafness   float64       // a process receives no notifications, or its connection breaks
	Lies       float64       // false notifications for a while
	Killed     float64       // a consumer is killed
	Stopped    float64       // a consumer is stopped for a while
	Leaves     float64       // a consumer leaves
	Background float64       // chance that any call has a fault, storm or not
}

func (f Faults) any() bool { return f.Every > 0 || f.Background > 0 }
