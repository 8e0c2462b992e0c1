package store

import (
	"maps"
	"slices"
)

// Message is a message to store.
type Message struct {
	ID    string
	Delay int64 // ms
	At    int64 // instead of Delay, unless 0: when it is due, in ms
	Body  []byte
}

// Batch is a batch of calls for Push, each stored whole or not at all.
type Batch struct {
	Publisher  string
	Number     int64
	Duplicates string // reject, ignore or replace
	Window     int64  // for how many ms the keys are in use at least
	Calls      [][]Message
	Fails      string // why the batch cannot be stored; empty: it can
}

// Pushed is the result of a batch.
type Pushed struct {
	Duplicates []Duplicate
	Stored     []string // ids stored by this call
	Ignored    []string // ids not stored because their keys are in use
	Replaced   []string // ids that were replaced
	Failed     string   // why none of it is or will be stored
	Stale      bool     // the publisher has sent a later batch
}

// Duplicate is a message whose key is in use; if duplicates are rejected, only the first one of a call. Both indexes start at 0.
type Duplicate struct{ Call, Message int }

// pushed is the record of a publisher.
type pushed struct {
	number     int64
	duplicates []Duplicate
	failed     string
}

// Push stores a batch, once.
func (p *Partition) Push(now int64, b Batch) Pushed {
	if last, known := p.publishers[b.Publisher]; known && last.number >= b.Number {
		if last.number == b.Number {
			return Pushed{Duplicates: last.duplicates, Failed: last.failed}
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
		if m := p.conflict(now, call); b.Duplicates == "reject" && m >= 0 {
			result.Duplicates = append(result.Duplicates, Duplicate{i, m})
			continue
		}
		for n, m := range call {
			due := Due(now, m.Delay)
			if m.At != 0 {
				due = max(m.At, nowMS(now))
			}
			switch stored := p.store(now, &result, b.Duplicates, m, due); {
			case !stored:
				result.Duplicates = append(result.Duplicates, Duplicate{i, n})
			case first < 0 || due < first:
				first = due
			}
		}
	}
	p.takeKeys(now, b, result.Stored)
	p.publishers[b.Publisher] = pushed{number: b.Number, duplicates: result.Duplicates}
	if first >= 0 && slices.Contains(result.Stored, p.scheduled.list[0].id) {
		p.wake(now, first, "")
	}
	return result
}

// Outcome reports whether a batch of a publisher is stored, and what Push returned. If the batch is not stored, no copy of it can
// be stored from now on. stale says that the publisher has sent a later batch.
func (p *Partition) Outcome(publisher string, number int64) (stored bool, duplicates []Duplicate, stale bool) {
	last, known := p.publishers[publisher]
	switch {
	case known && last.number > number:
		return false, nil, true
	case known && last.number == number && last.failed == "":
		return true, last.duplicates, false
	}
	p.publishers[publisher] = pushed{number: number, failed: "barred"}
	return false, nil, false
}

// DeleteRecords removes the record of a publisher.
func (p *Partition) DeleteRecords(publisher string) { delete(p.publishers, publisher) }

func (p *Partition) store(now int64, result *Pushed, duplicates string, m Message, due int64) bool {
	key := keyOf(m.ID)
	holder := p.keys[key]
	if duplicates == "ignore" && p.inUse(now, key, m.ID) {
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
	delete(p.lost, key)
	return true
}

// inUse reports whether a message other than the new one holds a key, or the key is within a window.
func (p *Partition) inUse(now int64, key, id string) bool {
	holder := p.keys[key]
	return key != "" && holder != id && (holder != "" || p.dedup[key]*1000 > now)
}

// takeKeys marks the keys of stored messages as in use for a window. A batch with keys also removes
// the windows that are over.
func (p *Partition) takeKeys(now int64, b Batch, stored []string) {
	if !slices.ContainsFunc(slices.Concat(b.Calls...), func(m Message) bool { return keyOf(m.ID) != "" }) {
		return
	}
	maps.DeleteFunc(p.dedup, func(_ string, until int64) bool { return until <= nowMS(now) })
	for _, id := range stored {
		if key := keyOf(id); key != "" && b.Window > 0 {
			p.dedup[key] = Due(now, b.Window)
		}
	}
}

// conflict returns the first message of a call whose key is in use; -1 if there is none.
func (p *Partition) conflict(now int64, call []Message) int {
	seen := map[string]bool{}
	for i, m := range call {
		key := keyOf(m.ID)
		if seen[key] || p.inUse(now, key, m.ID) {
			return i
		}
		seen[key] = key != ""
	}
	return -1
}
