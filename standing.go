package redisdelay

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill/components/delay"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// Canceler takes back messages by their keys. A Publisher is one. Code that needs only this
// can be tested with another, or be given one that adds something.
type Canceler interface {
	Cancel(ctx context.Context, topic, key string) (Standing, error)
}

// Rescheduler gives messages new due times by their keys. A Publisher is one.
type Rescheduler interface {
	Reschedule(ctx context.Context, topic, key string, to delay.Delay) (Standing, error)
}

var (
	_ Canceler    = (*Publisher)(nil)
	_ Rescheduler = (*Publisher)(nil)
)

// Standing says where a message stood at the moment when Redis ran a call for its key, before
// the call changed anything. The zero value says that there is no such message, or that
// nothing is known of it.
type Standing struct {
	// ID is the message's id, as in Delivery.
	ID string

	// Scheduled says that no group had been given the message yet: it was not due, or nobody
	// had looked since. Groups is empty then.
	Scheduled bool

	// Groups has the state of the message for each consumer group of the topic, and for groups
	// that are being retired and still hold it.
	Groups map[string]State
}

// State is where a message stands for a consumer group.
type State string

// The states of a message for a consumer group.
const (
	// StateWaiting says that the message waits and that no delivery of it counts: it has not
	// been delivered yet, was given back before a handler saw it, was put off (Defer) each
	// time, or is a dead letter that was requeued.
	StateWaiting State = "waiting"

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
func (s Standing) In(state State) []string {
	var names []string
	for name, other := range s.Groups {
		if other == state {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// String describes the standing for people, as in "billing: done, shipping: waiting".
func (s Standing) String() string {
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

// publicStanding is a standing as callers get it.
func publicStanding(in queue.Standing) Standing {
	s := Standing{ID: in.ID, Scheduled: in.Scheduled}
	for name, state := range in.Groups {
		if s.Groups == nil {
			s.Groups = make(map[string]State, len(in.Groups))
		}
		s.Groups[name] = State(state)
	}
	return s
}
