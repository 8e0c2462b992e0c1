package store

import (
	"maps"
	"slices"
)

// State is where a message is for a group.
type State string

// The states of a message for a group.
const (
	StateQueued     State = "queued" // for its first delivery that counts
	StateRetrying   State = "retrying"
	StateInDelivery State = "in-delivery"
	StateDone       State = "done" // or the group came after the message
	StateDead       State = "dead"
)

// Status is where a message was when a call found it.
type Status struct {
	ID        string // empty: there was none
	Scheduled bool
	Groups    map[string]State
}

// Lead is the id of the message that a key leads to: the one that holds it, or the dead
// message that has lost it.
func (p *Partition) Lead(key string) string {
	if id := p.keys[key]; id != "" {
		return id
	}
	return p.lost[key]
}

// Cancel takes back a message from all groups where it is no dead message. ok is false if there
// is no such message, or if only dead messages are left of it.
func (p *Partition) Cancel(id string) (s Status, ok bool) {
	if !p.Stored(id) {
		return Status{}, false
	}
	s = p.status(id)
	var dead []string
	for _, name := range slices.Sorted(maps.Keys(s.Groups)) {
		if s.Groups[name] == StateDead {
			dead = append(dead, name)
		}
	}
	if len(dead) > 0 && !s.waits() && !s.has(StateInDelivery) {
		return s, false
	}
	if key := keyOf(id); p.Lead(key) == id {
		delete(p.dedup, key)
	}
	p.scheduled.remove(id)
	for _, name := range slices.Sorted(maps.Keys(p.groups)) {
		p.cancelFor(name, id)
	}
	if len(dead) == 0 {
		delete(p.refs, id)
		delete(p.messages, id)
		p.free(id)
	} else if p.refs[id] != nil {
		p.refs[id] = dead
	}
	return s, true
}

// cancelFor takes back a message from one group.
func (p *Partition) cancelFor(name, id string) {
	g := p.groups[name]
	if !p.concerns(name, id) {
		g.orphans[id] = true
		return
	}
	if g.queue.has(id) || g.unack.has(id) {
		p.putOff(g, name, id)
	}
	waits, held := g.queue.remove(id), g.unack.remove(id)
	if waits || held {
		delete(g.attempts, id)
		delete(g.nackMetadata, id)
	}
	if held {
		p.makeRoom(g, name)
	}
}

// concerns reports whether a call looks for a message in a group: one that is retired only counts
// if refs names it.
func (p *Partition) concerns(name, id string) bool {
	return p.groups[name].registered || slices.Contains(p.refs[id], name)
}

// Orphaned reports whether a message was cancelled while a group was retired, which leaves it there.
func (p *Partition) Orphaned(name, id string) bool {
	return p.groups[name] != nil && p.groups[name].orphans[id]
}

// status is where a message is.
func (p *Partition) status(id string) Status {
	s := Status{ID: id, Scheduled: p.scheduled.has(id), Groups: map[string]State{}}
	for name, g := range p.groups {
		if !p.concerns(name, id) {
			continue
		}
		switch p.Place(name, id) {
		case Queued:
			s.Groups[name] = StateQueued
			if last := g.entry(id); last.Deliveries+last.Unsure > 0 {
				s.Groups[name] = StateRetrying
			}
		case Leased:
			s.Groups[name] = StateInDelivery
		case Dead:
			s.Groups[name] = StateDead
		case Nowhere:
			s.Groups[name] = StateDone
		}
	}
	return s
}

func (s Status) has(state State) bool {
	return slices.Contains(slices.Collect(maps.Values(s.Groups)), state)
}

// waits reports whether the message waits for any group.
func (s Status) waits() bool { return s.Scheduled || s.has(StateQueued) || s.has(StateRetrying) }

// Reschedule gives a waiting message a new due time, in ms. ok is false if it does not wait.
func (p *Partition) Reschedule(now int64, id string, due int64) (s Status, ok bool) {
	if !p.Stored(id) {
		return Status{}, false
	}
	s = p.status(id)
	sets, ahead, earlier := []*zset{&p.scheduled}, due > nowMS(now), p.scheduled.has(id) && due < p.scheduled.earliest()
	for name := range s.Groups {
		g := p.groups[name]
		// What waits in line is due already, and keeps its place unless it is postponed.
		if !g.queue.has(id) || !ahead && g.queue.scores[id] >= inLine {
			continue
		}
		sets, earlier = append(sets, &g.queue), earlier || due < g.queue.earliest()
		if ahead {
			p.putOff(g, name, id)
		}
	}
	for _, set := range sets {
		if set.has(id) {
			set.add(due, id)
		}
	}
	if earlier {
		p.wake(now, due, "")
	}
	return s, s.waits()
}
