package queue

import "github.com/redisdelay/watermill-redisdelay/internal/script"

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
	StateWaiting    State = "waiting"     // for its first delivery that counts
	StateRetrying   State = "retrying"    // waits after a delivery that failed
	StateInDelivery State = "in-delivery" // a consumer has it, or was lost with it
	StateDone       State = "done"        // acked, or the group came after the message
	StateDead       State = "dead"        // a dead letter
)

// standingOf reads the answer of cancel or reschedule.
func standingOf(reply script.Reply) (Standing, error) {
	how := reply.Text()
	if how == "none" && reply.Len() == 0 {
		return Standing{}, ErrNotFound
	}
	s := Standing{ID: reply.Text(), Scheduled: reply.Text() != "", Groups: map[string]State{}}
	for reply.More() {
		group := reply.Text()
		s.Groups[group] = State(reply.Text())
	}
	if err := reply.End(); err != nil {
		return Standing{}, err
	}
	switch {
	case how != "none":
		return s, nil
	case s.some(StateDead) && !s.some(StateInDelivery):
		return s, ErrDead
	default:
		return s, ErrNotFound
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
