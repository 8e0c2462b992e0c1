// Package chaos injects the faults that users meet and counts their effects.
//
// Each case is a test. Its short form runs with all other tests; `make chaos` runs the
// full form. docs/use/reliability.md lists the cases and what they catch.
package chaos

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kind is the kind of an Event.
type Kind string

// The kinds of events of a message.
const (
	Published Kind = "published" // Publish was called; Outcome says how it ended
	Delivered Kind = "delivered" // a handler got the message
	Handled   Kind = "handled"   // a handler is done and will ack
	Refused   Kind = "refused"   // a handler has failed and will nack
	Acked     Kind = "acked"     // Redis has accepted an ack
	Cancelled Kind = "cancelled" // Cancel was called; Outcome says how it ended: Failed if it found no message
	Used      Kind = "used"      // resources of a worker process; not about a message
)

// Outcome is the result of a Publish call.
type Outcome string

// The results of a Publish call.
const (
	OK      Outcome = "ok"
	Failed  Outcome = "failed"  // certainly not stored
	Unknown Outcome = "unknown" // no answer, or the process died
)

// Event is one event of a message. Times are by the clock of Redis's host, in µs.
type Event struct {
	Kind    Kind    `json:"kind"`
	UUID    string  `json:"uuid,omitempty"`
	Outcome Outcome `json:"outcome,omitempty"` // of Published and Cancelled
	Due     int64   `json:"due,omitempty"`     // of Published: must not be delivered before
	Wait    int64   `json:"wait,omitempty"`    // of Published: due so many µs after the call, at the latest
	ID      string  `json:"id,omitempty"`      // of all but Published
	Worker  string  `json:"worker,omitempty"`  // of all but Published, if it has a name
	Group   string  `json:"group,omitempty"`   // of all but Published
	Attempt int     `json:"attempt,omitempty"` // of Delivered
	Token   int64   `json:"token,omitempty"`   // of all but Published and Acked
	Claimed int64   `json:"claimed,omitempty"` // of Delivered: when the lease began
	At      int64   `json:"at"`

	Heap       int64 `json:"heap,omitempty"`       // of Used: bytes
	Goroutines int   `json:"goroutines,omitempty"` // of Used
}

// History has the events of a case. It is safe for concurrent use.
type History struct {
	mu     sync.Mutex
	events []Event // guarded by mu
	usage  Event   // guarded by mu; the last Used event
}

// Add adds an event. Its time is now unless it has one.
func (h *History) Add(e Event) {
	if e.At == 0 {
		e.At = time.Now().UnixMicro()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.Kind == Used {
		h.usage = e
		return
	}
	h.events = append(h.events, e)
}

// Usage returns the last report of a worker process about its resources.
func (h *History) Usage() Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.usage
}

// Count returns how many messages have an event of a kind.
func (h *History) Count(kind Kind) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := map[string]bool{}
	for _, e := range h.events {
		if e.Kind == kind {
			seen[e.Group+"\x00"+e.UUID+e.ID] = true
		}
	}
	return len(seen)
}

// Events returns the events so far.
func (h *History) Events() []Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events)
}

// Report has the findings of a case, as UUIDs of messages. All lists must be empty.
type Report struct {
	Lost        []string // published, not handled by some group, and not in Redis
	Stuck       []string // still in Redis at the end
	Early       []string
	Unexpected  []string // never published
	StoredTwice []string // delivered under two ids
	Resurrected []string // delivered again after Redis had accepted an ack

	Published   map[Outcome]int
	Deliveries  int
	Redelivered int // deliveries beyond the first, for each message and group
}

// Failures lists the violations, one line per kind.
func (r Report) Failures() string {
	var lines []string
	for _, verdict := range []struct {
		name  string
		uuids []string
	}{
		{"lost", r.Lost},
		{"stuck", r.Stuck},
		{"early", r.Early},
		{"unexpected", r.Unexpected},
		{"stored twice", r.StoredTwice},
		{"resurrected", r.Resurrected},
	} {
		if n := len(verdict.uuids); n > 0 {
			lines = append(lines, fmt.Sprintf("%d %s: %v", n, verdict.name, verdict.uuids[:min(n, 10)]))
		}
	}
	return strings.Join(lines, "\n")
}

// String summarizes the report.
func (r Report) String() string {
	return fmt.Sprintf("published %d ok, %d failed, %d unknown; %d deliveries, %d of them again (%.2f %%)",
		r.Published[OK], r.Published[Failed], r.Published[Unknown],
		r.Deliveries, r.Redelivered, 100*float64(r.Redelivered)/float64(max(1, r.Deliveries)))
}

// Check judges the history. Each group must have handled each published message, except those whose
// UUIDs are left in Redis, which are stuck, and excused ones, such as intended dead messages.
func (h *History) Check(groups, left, excused []string) Report {
	c := newChecker(h.Events())
	report := Report{Published: map[Outcome]int{}, Stuck: unique(left)}
	for uuid, outcome := range c.outcomes {
		report.Published[outcome]++
		for _, group := range groups {
			done := c.handled[groupMessage{group, uuid}] || slices.Contains(left, uuid) || slices.Contains(excused, uuid)
			if outcome == OK && !done {
				report.Lost = append(report.Lost, uuid)
			}
		}
	}
	seen, ids := map[groupMessage]bool{}, map[string]string{}
	for _, e := range c.deliveries {
		report.Deliveries++
		if outcome, published := c.outcomes[e.UUID]; !published || outcome == Failed {
			report.Unexpected = append(report.Unexpected, e.UUID)
		}
		if e.At < c.due[e.UUID] {
			report.Early = append(report.Early, e.UUID)
		}
		if id := ids[e.UUID]; id != "" && id != e.ID {
			report.StoredTwice = append(report.StoredTwice, e.UUID)
		}
		ids[e.UUID] = e.ID
		if at, acked := c.acked[groupMessage{e.Group, e.ID}]; acked && e.Claimed > at {
			report.Resurrected = append(report.Resurrected, e.UUID)
		}
		if seen[groupMessage{e.Group, e.UUID}] {
			report.Redelivered++
		}
		seen[groupMessage{e.Group, e.UUID}] = true
	}
	return report
}

type groupMessage struct{ group, message string }

// checker has the history in the order that the checks need.
type checker struct {
	outcomes   map[string]Outcome     // by UUID
	due        map[string]int64       // by UUID
	deliveries []Event                // in order of time
	handled    map[groupMessage]bool  // by UUID
	acked      map[groupMessage]int64 // by id: when the first ack was accepted
}

func newChecker(events []Event) *checker {
	slices.SortStableFunc(events, func(a, b Event) int { return int(a.At - b.At) })
	c := &checker{
		outcomes: map[string]Outcome{}, due: map[string]int64{},
		handled: map[groupMessage]bool{}, acked: map[groupMessage]int64{},
	}
	for _, e := range events {
		switch e.Kind {
		case Published:
			c.outcomes[e.UUID] = e.Outcome
			c.due[e.UUID] = e.Due
		case Delivered:
			c.deliveries = append(c.deliveries, e)
		case Handled:
			c.handled[groupMessage{e.Group, e.UUID}] = true
		case Acked:
			if _, again := c.acked[groupMessage{e.Group, e.ID}]; !again {
				c.acked[groupMessage{e.Group, e.ID}] = e.At
			}
		}
	}
	return c
}

func unique(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return slices.Compact(list)
}
