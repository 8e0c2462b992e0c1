package relay

// maxRefused is how many refused messages a lane remembers.
const maxRefused = 10_000

// refusals counts how often the target has refused messages of a topic after it had taken
// others since it last refused them: a target that takes none may be down. A first refusal does
// not count.
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

// add notes that the target has refused a message, and tells whether that is for good.
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
