package store

import (
	"fmt"
	"slices"
)

// Place is the state of a message in a group.
type Place string

// The places of a message.
const (
	Nowhere   Place = ""
	Scheduled Place = "scheduled" // for all groups
	Queued    Place = "queue"
	Leased    Place = "unack"
	Dead      Place = "dead"
)

// Place returns the state of a message in a group.
func (p *Partition) Place(name, id string) Place {
	g := p.groups[name]
	switch {
	case p.scheduled.has(id):
		return Scheduled
	case g == nil:
		return Nowhere
	case g.queue.has(id):
		return Queued
	case g.unack.has(id):
		return Leased
	case g.dead.has(id):
		return Dead
	}
	return Nowhere
}

// Stored reports whether there is a body for a message.
func (p *Partition) Stored(id string) bool {
	_, stored := p.messages[id]
	return stored
}

// Scheduled lists the messages that have not been given to the groups.
func (p *Partition) Scheduled() []string {
	ids := make([]string, len(p.scheduled.list))
	for i, e := range p.scheduled.list {
		ids[i] = e.id
	}
	return ids
}

// Pending counts the messages that a group still has to handle.
func (p *Partition) Pending(name string) int {
	g := p.groups[name]
	if g == nil {
		return 0
	}
	return len(p.scheduled.list) + len(g.queue.list) + len(g.unack.list)
}

// Check finds a message that is in two states, in none, or without a body.
func (p *Partition) Check() error {
	homes := map[string]int{} // how many groups have each message
	for name, g := range p.groups {
		if err := p.checkOrder(name, g); g.registered && err != nil {
			return err
		}
		for _, set := range []*zset{&g.queue, &g.unack, &g.dead} {
			for _, e := range set.list {
				if err := p.checkOne(name, g, e.id); err != nil {
					return err
				}
				homes[e.id]++
			}
		}
	}
	for id := range p.messages {
		switch scheduled := p.scheduled.has(id); {
		case scheduled && homes[id] > 0:
			return fmt.Errorf("%s is scheduled and with %d groups", id, homes[id])
		case !scheduled && homes[id] == 0:
			return fmt.Errorf("%s has a body and is nowhere", id)
		}
	}
	for _, e := range p.scheduled.list {
		if _, stored := p.messages[e.id]; !stored {
			return fmt.Errorf("%s is scheduled without a body", e.id)
		}
	}
	return nil
}

func (p *Partition) checkOne(name string, g *group, id string) error {
	places := 0
	for _, set := range []*zset{&g.queue, &g.unack, &g.dead} {
		if set.has(id) {
			places++
		}
	}
	if places > 1 {
		return fmt.Errorf("%s is in %d sets of group %s", id, places, name)
	}
	if _, stored := p.messages[id]; !stored && !g.orphans[id] {
		return fmt.Errorf("%s of group %s has no body", id, name)
	}
	if refs := p.refs[id]; refs != nil && !slices.Contains(refs, name) {
		return fmt.Errorf("%s is with group %s, but only %v need its body", id, name, refs)
	}
	return nil
}
