package relay

// maxFailed is the maximum number of rejected messages that a route remembers.
const maxFailed = 10_000

// failures counts how often the target has rejected each message of a topic. A failure counts only if the target has
// accepted another message since the previous failure of this one, because a target that accepts none may be down. So the
// first failure does not count.
type failures struct {
	max    int
	counts map[string]failure // by the message's id
	takes  int                // how many messages the target has accepted
}

type failure struct {
	count int
	takes int // failures.takes at the last one
}

// accepted records that the target has accepted a message.
func (r *failures) accepted(id string) {
	r.takes++
	delete(r.counts, id)
}

// add records that the target has rejected a message, and reports whether the message has reached MaxFailures.
func (r *failures) add(id string) bool {
	known, exists := r.counts[id]
	if !exists && len(r.counts) >= maxFailed { // later failures are counted from 0
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
