package store

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
)

// inLine is added to the due time of a message that waits in its group's queue for its ordering key.
const inLine = 1 << 52

// maxPlaces is how many places without a message one call may read for an ordering key.
const maxPlaces = 100

// maxInLine is how many messages a claim may let wait in line if its limit is lower.
const maxInLine = 500

// carried matches the ULID of an id and, if there is an ordering key, the length of that key.
var carried = regexp.MustCompile(`^.{26}(?:=((\d+),))?`)

// keysOf returns the ordering key with its length, and the message key, that follow the 26 characters of
// the ULID in an id; "" for none.
func keysOf(id string) (orderKey, key string) {
	match := carried.FindStringSubmatch(id)
	if match == nil {
		return "", ""
	}
	length, _ := strconv.Atoi(match[2])
	from := len(match[0]) + length
	if match[2] != "" {
		orderKey = id[len(match[0])-len(match[1]) : from]
	}
	if len(id) > from {
		key = id[from+1:]
	}
	return orderKey, key
}

func keyOf(id string) string {
	_, key := keysOf(id)
	return key
}

func orderKeyOf(id string) string {
	orderKey, _ := keysOf(id)
	return orderKey
}

// hasTurn reports whether a message that turns names still has its turn: it is in delivery, or waits for a retry
// or a claim, or is dead and halts its key.
func (g *group) hasTurn(id string, halts bool) bool {
	score, waits := g.queue.scores[id]
	return g.unack.has(id) || waits && score < inLine || halts && g.dead.has(id)
}

// join lets a due message wait in line.
func (g *group) join(orderKey string, due int64, id string) {
	e := entry{due, id}
	if at, found := slices.BinarySearchFunc(g.blocked[orderKey], e, compare); !found {
		g.blocked[orderKey] = slices.Insert(g.blocked[orderKey], at, e)
	}
	g.queue.add(due+inLine, id)
}

// quit removes a message that waits in line.
func (g *group) quit(orderKey, id string) {
	score, waits := g.queue.scores[id]
	if orderKey == "" || !waits || score < inLine {
		return
	}
	if at, found := slices.BinarySearchFunc(g.blocked[orderKey], entry{score - inLine, id}, compare); found {
		g.drop(orderKey, at)
	}
}

func (g *group) drop(orderKey string, at int) {
	if g.blocked[orderKey] = slices.Delete(g.blocked[orderKey], at, at+1); len(g.blocked[orderKey]) == 0 {
		delete(g.blocked, orderKey)
	}
}

// passTurn ends the turn of a message, if the message has it, and reports whether another message has it now.
func (g *group) passTurn(orderKey, id string) (passed bool) {
	if orderKey == "" || g.turns[orderKey] != id {
		return false
	}
	for range maxPlaces {
		if len(g.blocked[orderKey]) == 0 {
			delete(g.turns, orderKey)
			return false
		}
		first := g.blocked[orderKey][0]
		if score, waits := g.queue.scores[first.id]; waits && score == first.score+inLine {
			g.turns[orderKey] = first.id
			g.queue.add(first.score, first.id)
			g.drop(orderKey, 0)
			return true
		}
		g.drop(orderKey, 0)
	}
	return false
}

// passTurns ends the turns of messages, and wakes the group if other messages have them now.
func (p *Partition) passTurns(g *group, name string, ids []string) (passed bool) {
	for _, id := range ids {
		passed = g.passTurn(orderKeyOf(id), id) || passed
	}
	if passed {
		p.wake(0, 0, name)
	}
	return passed
}

// endTurns passes on the turns of new dead messages, unless they halt their keys.
func (p *Partition) endTurns(g *group, name string, dead []string) {
	if !p.halts(name) {
		p.passTurns(g, name, dead)
	}
}

// putOff removes waiting messages from their places in line, ends their turns, and wakes the group, or all groups for
// "", if other messages have them now.
func (p *Partition) putOff(g *group, name string, ids ...string) {
	for _, id := range ids {
		g.quit(orderKeyOf(id), id)
	}
	p.passTurns(g, name, ids)
}

// halts reports whether a dead message of a group halts its ordering key.
func (p *Partition) halts(name string) bool { return p.limits[name].HaltsKeys }

// noteHalted records that dead messages may have turns, which the next claim ends, if the group no longer halts keys.
func (p *Partition) noteHalted(name string) {
	if g := p.groups[name]; g != nil && p.halts(name) {
		g.halted = true
	}
}

// beginsBusy reports whether another message has the turn of the first due message.
func (g *group) beginsBusy(z *zset, now int64) bool {
	for _, e := range z.upTo(now, 1) {
		owner := g.turns[orderKeyOf(e.id)]
		return owner != "" && owner != e.id
	}
	return false
}

// heal passes on turns whose messages are nowhere, and reports whether there were any. The scripts check only a
// few turns, so a claim that finds one says that there may be more.
func (g *group) heal(halts bool) (healed bool) {
	for orderKey, id := range g.turns {
		if !g.hasTurn(id, halts) {
			g.passTurn(orderKey, id)
			healed = true
		}
	}
	return healed
}

// checkOrder finds a message in delivery that does not have its turn, and a message in line that waits for no other. A dead message
// has its turn only in a group that halts keys, or that has halted keys until its next claim.
func (p *Partition) checkOrder(name string, g *group) error {
	halts := p.halts(name) || g.halted
	for _, e := range g.unack.list {
		if orderKey := orderKeyOf(e.id); orderKey != "" && g.turns[orderKey] != e.id {
			return fmt.Errorf("%s is in delivery to group %s, and %q has the turn of %q", e.id, name, g.turns[orderKey], orderKey)
		}
	}
	for _, e := range g.queue.list {
		if e.score < inLine {
			continue
		}
		orderKey := orderKeyOf(e.id)
		if owner := g.turns[orderKey]; owner == "" || !g.hasTurn(owner, halts) {
			return fmt.Errorf("%s waits in group %s for %q, whose turn %q has", e.id, name, orderKey, owner)
		}
		if !slices.Contains(g.blocked[orderKey], entry{e.score - inLine, e.id}) {
			return fmt.Errorf("%s waits in group %s, and is not in line", e.id, name)
		}
	}
	return nil
}
