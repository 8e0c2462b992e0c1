package queue

import "fmt"

// Standing says where a message stood when Redis ran a call of Cancel or Reschedule. The
// zero value says that there was none.
type Standing struct {
	ID        string
	Scheduled bool             // not given to the groups yet
	Groups    map[string]State // of each group that it was given to, and of those that came later
}

// State is where a message is for a group.
type State string

// The states of a message for a group, as the scripts name them.
const (
	StateQueued     State = "queued"      // for its first delivery that counts
	StateRetrying   State = "retrying"    // waits after a delivery that failed
	StateInDelivery State = "in-delivery" // a consumer has it, or was lost with it
	StateDone       State = "done"        // acked, or the group came after the message
	StateDead       State = "dead"        // a dead letter
)

// standingOf parses the answer of cancel or reschedule.
func standingOf(reply []string) (Standing, error) {
	const first = 3 // group
	if len(reply) == 1 && reply[0] == "none" {
		return Standing{}, ErrNotFound
	}
	if len(reply) < first || len(reply)%2 != first%2 {
		return Standing{}, fmt.Errorf("%w: a standing of %d values", errReply, len(reply))
	}
	s := Standing{ID: reply[1], Scheduled: reply[2] != "", Groups: map[string]State{}}
	for i := first; i < len(reply); i += 2 {
		s.Groups[reply[i]] = State(reply[i+1])
	}
	switch {
	case reply[0] != "none":
		return s, nil
	case s.some(StateDead) && !s.some(StateInDelivery):
		return s, ErrDead
	default:
		return s, errHeld
	}
}

// some tells whether the message is in a state for any group.
func (s Standing) some(state State) bool {
	for _, other := range s.Groups {
		if other == state {
			return true
		}
	}
	return false
}
