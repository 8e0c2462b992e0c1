package store

import (
	"maps"
	"slices"
)

// Message is a message to store.
type Message struct {
	ID    string
	Delay int64 // ms
	Body  []byte
}

// Batch is what Push stores: calls, each whole or not at all.
type Batch struct {
	Publisher  string
	Number     int64
	Duplicates string // reject, ignore or replace
	Calls      [][]Message
	Fails      string // why it cannot be stored; empty: it can
}

// Pushed is the outcome of a batch.
type Pushed struct {
	Refused  []int    // calls whose key is in use
	Stored   []string // ids stored by this call
	Ignored  []string // ids not stored, since their keys are in use
	Replaced []string // ids that were replaced
	Failed   string   // why none of it is or will be stored
	Stale    bool     // the publisher has sent a later batch
}

// pushed is the record of a publisher.
type pushed struct {
	number  int64
	refused []int
	failed  string
}

// Push stores a batch, once.
func (p *Partition) Push(now int64, b Batch) Pushed {
	if last, known := p.publishers[b.Publisher]; known && last.number >= b.Number {
		if last.number == b.Number {
			return Pushed{Refused: last.refused, Failed: last.failed}
		}
		return Pushed{Stale: true}
	}
	if b.Fails != "" {
		p.publishers[b.Publisher] = pushed{number: b.Number, failed: b.Fails}
		return Pushed{Failed: b.Fails}
	}
	var result Pushed
	first := int64(-1)
	for i, call := range b.Calls {
		if b.Duplicates == "reject" && p.conflict(call) {
			result.Refused = append(result.Refused, i)
			continue
		}
		for _, m := range call {
			due := dueMS(now, m.Delay)
			if p.store(&result, b.Duplicates, m, due) && (first < 0 || due < first) {
				first = due
			}
		}
	}
	p.publishers[b.Publisher] = pushed{number: b.Number, refused: result.Refused}
	if first >= 0 && slices.Contains(result.Stored, p.scheduled.list[0].id) {
		p.wake(now, first, "")
	}
	return result
}

func (p *Partition) store(result *Pushed, duplicates string, m Message, due int64) bool {
	key := keyOf(m.ID)
	holder := p.keys[key]
	if key != "" && holder != "" && holder != m.ID && duplicates == "ignore" {
		result.Ignored = append(result.Ignored, m.ID)
		return false
	}
	p.messages[m.ID] = m.Body
	p.scheduled.add(due, m.ID)
	result.Stored = append(result.Stored, m.ID)
	if key == "" {
		return true
	}
	if holder != "" && holder != m.ID && p.scheduled.remove(holder) {
		delete(p.messages, holder)
		result.Replaced = append(result.Replaced, holder)
	}
	p.keys[key] = m.ID
	return true
}

func (p *Partition) conflict(call []Message) bool {
	seen := map[string]bool{}
	for _, m := range call {
		key := keyOf(m.ID)
		if key == "" {
			continue
		}
		if holder := p.keys[key]; seen[key] || holder != "" && holder != m.ID {
			return true
		}
		seen[key] = true
	}
	return false
}

// Cancel takes back the message that holds a key, from all groups. It returns its id,
// if there is one.
func (p *Partition) Cancel(key string) string {
	id := p.keys[key]
	if id == "" {
		return ""
	}
	p.scheduled.remove(id)
	for _, name := range slices.Sorted(maps.Keys(p.groups)) {
		g := p.groups[name]
		if !p.concerns(name, id) {
			g.orphans[id] = true
			continue
		}
		g.queue.remove(id)
		if g.unack.remove(id) {
			p.makeRoom(g, name)
		}
		delete(g.attempts, id)
		delete(g.changed, id)
	}
	delete(p.refs, id)
	delete(p.messages, id)
	delete(p.keys, key)
	return id
}

// concerns tells whether a call by key looks for a message in a group: one that is retired
// only counts if refs names it.
func (p *Partition) concerns(name, id string) bool {
	return p.groups[name].registered || slices.Contains(p.refs[id], name)
}

// Reschedule gives the waiting message that holds a key a new due time. It returns its
// id, if there is one.
func (p *Partition) Reschedule(now int64, key string, delay int64) string {
	id := p.keys[key]
	if id == "" {
		return ""
	}
	due, found := dueMS(now, delay), false
	sets := []*zset{&p.scheduled}
	for _, name := range slices.Sorted(maps.Keys(p.groups)) {
		if p.concerns(name, id) {
			sets = append(sets, &p.groups[name].queue)
		}
	}
	for _, set := range sets {
		if !set.has(id) {
			continue
		}
		found = true
		earliest, _ := set.head()
		set.add(due, id)
		if due < earliest {
			p.wake(now, due, "")
		}
	}
	if !found {
		return ""
	}
	return id
}
