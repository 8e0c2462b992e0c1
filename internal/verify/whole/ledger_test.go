package whole

import (
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// ledger knows what was published and what came of it.
type ledger struct {
	plan  *Plan
	start time.Time

	mu       sync.Mutex
	entries  map[string]*entry  // guarded by mu; by UUID
	order    []*entry           // guarded by mu
	turns    map[string]*turn   // guarded by mu; by group and ordering key
	troubles []trouble          // guarded by mu
	losses   []trouble          // guarded by mu
	failures map[string]*broken // guarded by mu; by rule
	stats    Stats              // guarded by mu
}

// Stats count what happened in a run.
type Stats struct {
	Virtual                                            time.Duration
	Published, Delivered, Duplicates, Visitors, Faults int
	Requests                                           int
	MostLate                                           time.Duration // of an idle consumer, while nothing was wrong
}

// broken is a rule that was broken.
type broken struct {
	first string
	times int
}

type outcome int

const (
	unknown outcome = iota
	stored
	notStored
)

// entry is a message.
type entry struct {
	uuid, key        string
	ordering         string // key
	called, answered time.Time
	earliest, latest time.Time // between which it falls due
	outcome          outcome
	uncertain        bool      // by Cancel or Reschedule: it may be gone, for some groups
	cancelled        time.Time // nobody may get it from then on
	fails            bool      // until it is requeued
	got              map[string]int
}

// trouble is a time in which promises are not kept.
type trouble struct {
	scope    string // a group or a process; "": all
	from, to time.Time
}

func (l *ledger) fail(rule, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broke(rule, format, args...)
}

// broke is fail for a caller that holds mu.
func (l *ledger) broke(rule, format string, args ...any) {
	if b := l.failures[rule]; b != nil {
		b.times++
		return
	}
	text := fmt.Sprintf("at %v: ", time.Since(l.start)) + fmt.Sprintf(format, args...)
	l.failures[rule] = &broken{first: text, times: 1}
}

// trouble notes that something is wrong from now on, for so long.
func (l *ledger) trouble(scope string, lasts time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.troubles = append(l.troubles, trouble{scope, now, now.Add(lasts)})
}

// troubled reports whether anything was wrong for one of the scopes in a time. The caller
// holds mu.
func (l *ledger) troubled(from, to time.Time, scopes ...string) bool {
	for _, t := range l.troubles {
		if t.to.After(from) && t.from.Before(to) && t.concerns(scopes) {
			return true
		}
	}
	return false
}

func (t trouble) concerns(scopes []string) bool {
	for _, s := range scopes {
		if t.scope == s {
			return true
		}
	}
	return t.scope == ""
}

// waited is how long a message has waited while nothing was wrong for the group. The caller
// holds mu.
func (l *ledger) waited(due, now time.Time, group string) time.Duration {
	for moved := true; moved; {
		moved = false
		for _, t := range l.troubles {
			if t.concerns([]string{group}) && t.from.Before(due.Add(l.plan.MaxLate)) && t.to.After(due) {
				due, moved = t.to, true
			}
		}
	}
	return now.Sub(due)
}

// publishing notes a call. Its outcome is not known until published.
func (l *ledger) publishing(e *entry, after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.called = time.Now()
	e.earliest = e.called.Add(after).Truncate(time.Millisecond)
	e.latest, e.got = e.earliest.Add(time.Hour), map[string]int{}
	l.entries[e.uuid] = e
	l.order = append(l.order, e)
}

func (l *ledger) published(e *entry, after time.Duration, o outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.answered, e.outcome = time.Now(), o
	e.latest = e.answered.Add(after)
	if o == stored {
		l.stats.Published++
	}
	if o == notStored && len(e.got) > 0 {
		l.broke("unexpected", "%s was delivered, and then Publish said that it is not stored", e.uuid)
	}
}

// delivered checks a delivery, and returns whether the handler succeeds.
func (l *ledger) delivered(c *consumer, msg *message.Message) bool {
	d, _ := redisdelay.DeliveryFromContext(msg.Context())
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Delivered++
	e := l.entries[msg.UUID]
	switch {
	case e == nil:
		l.broke("unexpected", "%q, which nobody has published, was delivered to %s", msg.UUID, c.name)
		return true
	case now.Before(d.DueAt) || now.Before(e.earliest):
		l.broke("early", "%s was delivered to %s at %v, due at %v and %v", e.uuid, c.name,
			now.Sub(l.start), d.DueAt.Sub(l.start), e.earliest.Sub(l.start))
	case e.outcome == notStored:
		l.broke("unexpected", "%s was delivered to %s, but Publish has said that it is not stored", e.uuid, c.name)
	case !e.cancelled.IsZero() && now.After(e.cancelled):
		l.broke("unexpected", "%s was delivered to %s %v after it was cancelled", e.uuid, c.name, now.Sub(e.cancelled))
	}
	free := l.begins(e, c, d)
	if free.Before(d.DueAt) {
		free = d.DueAt
	}
	if d.Attempt == 1 {
		l.punctual(e, c, l.waited(free, now, c.group))
	}
	if e.fails {
		return false
	}
	if e.got[c.group]++; e.got[c.group] == 2 {
		if l.stats.Duplicates++; l.plan.Strict {
			l.broke("twice", "%s was delivered to %s after an ack of the group", e.uuid, c.name)
		}
	}
	return true
}

// punctual checks how long a message has waited for a consumer. The caller holds mu.
func (l *ledger) punctual(e *entry, c *consumer, waited time.Duration) {
	l.stats.MostLate = max(l.stats.MostLate, waited)
	if waited > l.plan.MaxLate {
		l.broke("late", "%s waited %v for %s, which was idle", e.uuid, waited, c.name)
	}
}

// missing checks what a group was owed: all that was certainly stored, and due in a time.
func (l *ledger) missing(group string, from, to time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.order {
		owed := e.outcome == stored && e.cancelled.IsZero() && !e.uncertain && !e.fails
		if !owed || e.got[group] > 0 || !e.earliest.After(from) || !e.latest.Before(to) || l.lost(e, group) || l.troubled(e.earliest, to, group) {
			continue
		}
		l.broke("lost", "%s, due %v after the start and %v before the end of group %s, was not delivered to it",
			e.uuid, e.earliest.Sub(from), to.Sub(e.latest), group)
	}
}

// left is a message that one of the groups still has to handle, if any.
func (l *ledger) left(groups map[string]int) (uuid, group string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.order {
		if e.outcome != stored || !e.cancelled.IsZero() || e.uncertain {
			continue
		}
		for group := range groups {
			if e.got[group] == 0 && !l.lost(e, group) {
				return e.uuid, group
			}
		}
	}
	return "", ""
}

// lose notes that a group, or all for "", may lose what falls due until so long after now.
func (l *ledger) lose(scope string, lasts time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.losses = append(l.losses, trouble{scope: scope, to: time.Now().Add(lasts)})
}

// lost reports whether an entry may be lost for a group. The caller holds mu.
func (l *ledger) lost(e *entry, group string) bool {
	for _, t := range l.losses {
		if t.concerns([]string{group}) && e.earliest.Before(t.to) {
			return true
		}
	}
	return false
}

// change applies what a Cancel or Reschedule did to an entry.
func (l *ledger) change(e *entry, do func(e *entry)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do(e)
}

// heal lets messages that fail succeed from now on.
func (l *ledger) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.order {
		e.fails = false
	}
}
