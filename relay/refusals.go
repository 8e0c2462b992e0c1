package relay

// maxRefused is how many refused messages a route remembers.
const maxRefused = 10_000

// refusals counts how often the target has refused each message of a topic. A refusal counts only if the target has taken
// another message since the last refusal of this one: a target that takes none may be down. So a first refusal does not count.
type refusals struct {
	max    int
	counts map[string]refusal // by the message's id
	takes  int                // how many messages the target has taken
}

type refusal struct {
	count int
	takes int // refusals.takes at the last one
}

// taken notes that the target has taken a message.
func (r *refusals) taken(id string) {
	r.takes++
	delete(r.counts, id)
}

// add notes that the target has refused a message, and reports whether that is for good.
func (r *refusals) add(id string) bool {
	known, exists := r.counts[id]
	if !exists && len(r.counts) >= maxRefused { // they are refused again, and counted anew
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
