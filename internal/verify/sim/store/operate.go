package store

import "cmp"

// Operations of operators on messages. The simulation does not use them.

// Seen is a message with the score that a caller has seen. If the score has changed since, the
// message is skipped.
type Seen struct {
	ID    string
	Score int64
}

// Requeue makes dead messages that were buried up to latest due again. It returns the ids that are
// not such dead messages.
func (p *Partition) Requeue(now int64, name string, latest int64, ids []string) (missing []string) {
	g := p.groups[name]
	for _, id := range ids {
		if !g.buried(id, latest) {
			missing = append(missing, id)
			continue
		}
		g.attempts[id] = Receipt{Token: g.entry(id).Token}
		g.dead.remove(id)
		delete(g.reasons, id)
		g.queue.add(nowMS(now), id)
	}
	if len(missing) < len(ids) {
		p.wake(now, 0, name)
	}
	return missing
}

// Discard permanently removes dead messages that were buried up to latest. It returns the ids that
// are not such dead messages.
func (p *Partition) Discard(name string, latest int64, ids []string) (missing []string) {
	g := p.groups[name]
	var ended []string
	for _, id := range ids {
		if !g.buried(id, latest) {
			missing = append(missing, id)
			continue
		}
		g.dead.remove(id)
		delete(g.reasons, id)
		p.finish(g, name, id)
		ended = append(ended, id)
	}
	if g != nil {
		p.passTurns(g, name, ended)
	}
	return missing
}

// buried reports whether a message is a dead message that was buried up to latest.
func (g *group) buried(id string, latest int64) bool {
	return g != nil && g.dead.has(id) && g.dead.scores[id] <= latest
}

// BuryAny makes messages that wait for a group or are in delivery dead messages. It returns the ids
// of those that do neither, unless they are dead for this reason.
func (p *Partition) BuryAny(now int64, name, reason string, ids []string) (left []string) {
	g := p.groups[name]
	if g == nil {
		return ids
	}
	passed := false
	for _, id := range ids {
		g.quit(orderKeyOf(id), id)
		if g.queue.remove(id) || g.unack.has(id) {
			p.toDead(g, id, nowMS(now), reason)
			if orderKey := orderKeyOf(id); !p.halts(name) {
				passed = g.passTurn(orderKey, id) || passed
			} else if orderKey != "" && g.turns[orderKey] == "" {
				g.turns[orderKey] = id
			}
		} else if why, dead := g.whyDead(id); !dead || why != reason {
			left = append(left, id)
		}
	}
	if passed {
		p.wake(0, 0, name)
	}
	p.releaseCapacity(g, name)
	return left
}

// CancelScheduled removes scheduled messages. It returns the ids of messages that are not scheduled for the time that was seen.
func (p *Partition) CancelScheduled(some []Seen) (left []string) {
	for _, s := range some {
		if !p.scheduled.is(s) {
			left = append(left, s.ID)
			continue
		}
		if key := keyOf(s.ID); p.keys[key] == s.ID {
			delete(p.dedup, key)
		}
		p.scheduled.remove(s.ID)
		p.finish(newGroup(), "", s.ID)
	}
	return left
}

// RescheduleWaiting changes the due time, in ms (a time in the past counts as now), of scheduled messages or, with a group's name, of messages in
// its queue. It returns the ids of messages that do not wait there for the time that was seen.
func (p *Partition) RescheduleWaiting(now int64, name string, due int64, some []Seen) (left []string) {
	g := newGroup()
	set := &p.scheduled
	if name != "" {
		g = cmp.Or(p.groups[name], g)
		set = &g.queue
	}
	due = max(due, nowMS(now))
	first, ahead := set.earliest(), due > nowMS(now)
	var moved []string
	for _, s := range some {
		switch {
		case !set.is(s):
			left = append(left, s.ID)
		case ahead || name == "" || s.Score < inLine:
			moved = append(moved, s.ID)
		}
	}
	if ahead && name != "" {
		p.putOff(g, "", moved...)
	}
	for _, id := range moved {
		set.add(due, id)
	}
	if len(moved) > 0 && due < first {
		p.wake(now, due, "")
	}
	return left
}

// is reports whether a message has the score that was seen.
func (z *zset) is(s Seen) bool { return z.has(s.ID) && z.scores[s.ID] == s.Score }
