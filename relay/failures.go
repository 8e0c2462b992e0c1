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
func (f *failures) accepted(id string) {
	f.takes++
	delete(f.counts, id)
}

// add records that the target has rejected a message, and reports whether the message has reached MaxFailures.
func (f *failures) add(id string) bool {
	known, exists := f.counts[id]
	if !exists && len(f.counts) >= maxFailed { // later failures are counted from 0
		clear(f.counts)
	}
	if exists && f.takes > known.takes {
		known.count++
	}
	known.takes = f.takes
	f.counts[id] = known
	if known.count < f.max {
		return false
	}
	delete(f.counts, id)
	return true
}
