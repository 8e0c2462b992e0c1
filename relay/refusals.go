package relay

// maxRefused is the maximum number of refused messages that a route remembers.
const maxRefused = 10_000

// refusals counts how often the target has refused each message of a topic. A refusal counts only if the target has
// accepted another message since the previous refusal of this one, because a target that accepts none may be down. So the
// first refusal does not count.
type refusals struct {
	max    int
	counts map[string]refusal // by the message's id
	takes  int                // how many messages the target has accepted
}

type refusal struct {
	count int
	takes int // refusals.takes at the last one
}

// accepted records that the target has accepted a message.
func (r *refusals) accepted(id string) {
	r.takes++
	delete(r.counts, id)
}

// add records that the target has refused a message, and reports whether the message has reached MaxRefusals.
func (r *refusals) add(id string) bool {
	known, exists := r.counts[id]
	if !exists && len(r.counts) >= maxRefused { // later refusals are counted from 0
		clear(r.counts)
	}
	if exists && r.takes > known.takes {
		known.count++
	}
	known.takes = r.takes
	r.counts[id] = known
	if known.count < r.max {
		return false
	}
	delete(r.counts, id)
	return true
}
