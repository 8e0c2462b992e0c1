package store

import (
	"slices"
	"time"
)

// Delivery names one delivery of a message.
type Delivery struct {
	ID    string
	Token Token
}

// Nack is a failed delivery.
type Nack struct {
	Delivery
	Delay    int64  // ms
	Metadata []byte // nil keeps the metadata as it is
}

// Release is a message that is given back before a handler has seen it.
type Release struct {
	Delivery
	Due int64 // ms
	Age time.Duration
}

// Burial is a message that can never be handled.
type Burial struct {
	Delivery
	Reason string
}

// Held is a delivery that a consumer holds.
type Held struct {
	Delivery
	HandedOut bool // to a handler
}

// Ack ends messages for a group. It returns those that the group does not hold, and whether
// the group has waited for room.
func (p *Partition) Ack(name string, ids []string) (missing []string, room bool) {
	g := p.groups[name]
	var found []string // an id given twice is found twice
	for _, id := range ids {
		if g == nil || !g.unack.has(id) {
			missing = append(missing, id)
			continue
		}
		found = append(found, id)
	}
	for _, id := range found {
		g.unack.remove(id)
		p.finish(g, name, id)
	}
	return missing, len(found) > 0 && p.makeRoom(g, name)
}

// finish ends a message for one group; the last group removes the body.
func (p *Partition) finish(g *group, name, id string) {
	delete(g.attempts, id)
	delete(g.changed, id)
	left := slices.DeleteFunc(slices.Clone(p.refs[id]), func(other string) bool { return other == name })
	if len(left) > 0 {
		p.refs[id] = left
		return
	}
	delete(p.refs, id)
	delete(p.messages, id)
	p.free(id)
}

// Nack makes messages due again later, or buries them.
func (p *Partition) Nack(now int64, name string, maxDeliveries int, nacks []Nack) (stale []string, buried []Buried) {
	g := p.groups[name]
	first, left := int64(-1), false
	var earliest int64
	waiting := false
	if g != nil {
		earliest, waiting = g.queue.head()
	}
	for _, n := range nacks {
		token := n.Token.confirmed()
		if g == nil || !g.current(n.ID, n.Token) {
			if reason, dead := g.whyDead(n.ID); dead && g.attempts[n.ID] == token { // by this nack, whose reply was lost
				buried = append(buried, Buried{n.ID, reason})
			} else {
				stale = append(stale, n.ID)
			}
			continue
		}
		g.attempts[n.ID], left = token, true
		if n.Metadata != nil {
			g.changed[n.ID] = n.Metadata
		}
		if token.spent(maxDeliveries) {
			reason := token.reason(maxDeliveries)
			p.toDead(g, n.ID, nowMS(now), reason)
			buried = append(buried, Buried{n.ID, reason})
			continue
		}
		due := dueMS(now, n.Delay)
		if first < 0 || due < first {
			first = due
		}
		g.queue.add(due, n.ID)
		g.unack.remove(n.ID)
	}
	if left {
		p.makeRoom(g, name)
	}
	if first >= 0 && (!waiting || first < earliest) {
		p.wake(now, first, name)
	}
	return stale, buried
}

// Extend restarts leases, and counts the deliveries that handlers have seen.
func (p *Partition) Extend(now int64, name string, lease int64, held []Held) (stale []string) {
	g := p.groups[name]
	for _, h := range held {
		if g == nil || !g.current(h.ID, h.Token) {
			stale = append(stale, h.ID)
			continue
		}
		g.unack.add(ceilMS(now)+lease, h.ID)
		if h.HandedOut && g.entry(h.ID) == h.Token {
			g.attempts[h.ID] = h.Token.confirmed()
		}
	}
	return stale
}

// Release gives messages back with their old due times.
func (p *Partition) Release(now int64, name string, releases []Release) (stale []string) {
	g := p.groups[name]
	for _, r := range releases {
		if g == nil || !g.current(r.ID, r.Token) {
			stale = append(stale, r.ID)
			continue
		}
		g.attempts[r.ID] = r.Token.unseen()
		g.queue.add(r.Due, r.ID)
		g.unack.remove(r.ID)
		p.giveBack(name, r.Age)
	}
	if len(stale) < len(releases) {
		g.full = 0
		p.wake(now, 0, name)
	}
	return stale
}

// Bury makes messages dead letters. It returns those whose delivery is no longer the current
// one, unless it is what this delivery was buried for.
func (p *Partition) Bury(now int64, name string, burials []Burial) (stale []string) {
	g, left := p.groups[name], false
	for _, b := range burials {
		if g == nil || !g.current(b.ID, b.Token) {
			if reason, dead := g.whyDead(b.ID); !dead || reason != b.Reason || g.entry(b.ID).Fence != b.Token.Fence {
				stale = append(stale, b.ID)
			}
			continue
		}
		p.toDead(g, b.ID, nowMS(now), b.Reason)
		left = true
	}
	if left {
		p.makeRoom(g, name)
	}
	return stale
}

// Requeue makes dead letters due again. It returns the ids that are not dead letters.
func (p *Partition) Requeue(now int64, name string, ids []string) (missing []string) {
	g := p.groups[name]
	for _, id := range ids {
		if g == nil || !g.dead.remove(id) {
			missing = append(missing, id)
			continue
		}
		g.attempts[id] = Token{Fence: g.entry(id).Fence}
		delete(g.reasons, id)
		g.queue.add(nowMS(now), id)
	}
	if len(missing) < len(ids) {
		p.wake(now, 0, name)
	}
	return missing
}

// Discard removes dead letters for good. It returns the ids that are not dead letters.
func (p *Partition) Discard(name string, ids []string) (missing []string) {
	g := p.groups[name]
	for _, id := range ids {
		if g == nil || !g.dead.remove(id) {
			missing = append(missing, id)
			continue
		}
		delete(g.reasons, id)
		p.finish(g, name, id)
	}
	return missing
}
