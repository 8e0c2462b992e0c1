package store

import (
	"maps"
	"slices"
)

// State is the state of a message in a group.
type State string

// The states of a message in a group.
const (
	StateQueued     State = "queued" // for its first delivery that counts
	StateRetrying   State = "retrying"
	StateInDelivery State = "in-delivery"
	StateDone       State = "done" // or the group came after the message
	StateDead       State = "dead"
)

// Status is the state of a message before a call.
type Status struct {
	ID        string // empty: there was none
	Scheduled bool
	Groups    map[string]State
}

// Lead returns the id of the message that a key leads to: the message that holds it, or the dead
// message that has lost it.
func (p *Partition) Lead(key string) string {
	if id := p.keys[key]; id != "" {
		return id
	}
	return p.lost[key]
}

// Cancel removes a message from all groups in which it is not a dead message. ok is false if there
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

// cancelFor removes a message from one group.
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
		p.releaseCapacity(g, name)
	}
}

// concerns reports whether a call checks a group for a message: if the group is retired, only if
// refs names it.
func (p *Partition) concerns(name, id string) bool {
	return p.groups[name].registered || slices.Contains(p.refs[id], name)
}

// Orphaned reports whether a message was cancelled while a group was retired, so that the group still has it.
func (p *Partition) Orphaned(name, id string) bool {
	return p.groups[name] != nil && p.groups[name].orphans[id]
}

// status returns the state of a message.
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

// waits reports whether the message waits in scheduled or for any group.
func (s Status) waits() bool { return s.Scheduled || s.has(StateQueued) || s.has(StateRetrying) }

// Reschedule changes the due time of a waiting message, in ms; a time in the past counts as now. ok is false if it does not wait.
func (p *Partition) Reschedule(now int64, id string, due int64) (s Status, ok bool) {
	if !p.Stored(id) {
		return Status{}, false
	}
	s, due = p.status(id), max(due, nowMS(now))
	sets, ahead, earlier := []*zset{&p.scheduled}, due > nowMS(now), p.scheduled.has(id) && due < p.scheduled.earliest()
	for name := range s.Groups {
		g := p.groups[name]
		// A message that waits in line is due already, and keeps its place unless it is postponed.
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
