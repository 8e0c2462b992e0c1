package explore

import (
	"fmt"
	"slices"
	"strings"
)

// The ghost part of a state is what the clients know to be true. Its keys:
//
//	~sent        id -> batch number, result and policy of its push
//	~barred      id -> its first batch is barred
//	~life        id -> live after it was stored, gone after it has ended for all groups
//	~fate:G      id -> owed after it was given to the group, done after the group settled it
//	~last:G      id -> receipt of the last delivery, its consumer, the receipt before
//	~view:G      id -> the metadata as the group's middleware changed it
//	~requests:G  each consumer that has claimed; its last request is number firstRequest
//	~calls       each caller of cancel and reschedule that has called, likewise -> the id that it named
//	~again       each id that was stored twice because a record was lost, or was cancelled
//	             while a group that has it was not registered
//	~came after:G  id of a message in scheduled that was due when the group was registered
//	~torn        what a torn file may have undone or repeated: "restarted", id -> groups or *
const (
	lifeLive = "live"
	lifeGone = "gone"
	fateOwed = "owed"
	fateDone = "done"
)

// step is an operation and its result.
type step struct {
	u      *Universe
	op     op
	before state
	after  state
	out    outcome
	claim  claimed
}

// settled reports whether a message has ended for a group, as far as clients know.
func (s state) settled(g, msg string) bool {
	if s.value("~life", msg) != lifeLive || s.value("~fate:"+g, msg) == fateDone {
		return true
	}
	maybe := s.value("~torn", msg)
	return maybe == "*" || maybe == g
}

// relaxed reports whether only the weaker guarantees hold for a message.
func (s state) relaxed(msg string) bool {
	return s.has("~torn", "restarted") || s.has("~again", msg)
}

// places returns the sets of a group that have a message.
func (s state) places(g, msg string) (list []string) {
	for _, kind := range []string{"queue:", "unack:", "dead:"} {
		if s.has(kind+g, msg) {
			list = append(list, kind+g)
		}
	}
	return list
}

func (u *Universe) holders(s state, msg string) (list []string) {
	for _, g := range u.groups {
		if len(s.places(g, msg)) > 0 {
			list = append(list, g)
		}
	}
	return list
}

// learn updates the ghost part.
func (t *step) learn() {
	o := t.op
	switch o.kind {
	case "push":
		t.learnPush()
	case "outcome":
		if t.answer() == "barred" {
			t.after.set("~barred", o.target, "")
		}
	case "claim":
		t.learnClaim()
	case "register":
		t.learnRegister()
	case "ack", "discard":
		if !t.listed(o.msg) {
			t.finish(o.group, o.msg)
		}
	case "nack", "defer", "condemn":
		if o.arg != "" && t.before.holds(o.group, o.msg, o.receipt) {
			t.after.set("~view:"+o.group, o.msg, o.arg)
		}
	case "cancel", "reschedule":
		if o.arg == "new" || o.arg == "lost" {
			t.after.set("~calls", "z", o.target)
		}
		if msg := t.before.meant(o); t.answer() == "cancelled" && msg != "" {
			t.learnCancelled(msg)
		}
	}
	t.after.shift(o)
	for _, g := range t.u.groups {
		for _, e := range slices.Clone(t.after.all("~came after:" + g)) {
			if !t.after.has("scheduled", e.field) {
				t.after.remove(e.key, e.field)
			}
		}
	}
}

// learnCancelled records that a message has ended, except for groups in which it is a dead message.
func (t *step) learnCancelled(msg string) {
	reached, dead := reached(t.before, t.op), false
	for _, g := range reached {
		dead = dead || t.before.has("dead:"+g, msg)
	}
	if !dead {
		t.end(msg)
	}
	for _, g := range t.u.groups {
		switch {
		case !slices.Contains(reached, g) && len(t.after.places(g, msg)) > 0:
			t.after.set("~again", msg, "")
		case dead && !t.before.has("dead:"+g, msg) && t.after.value("~fate:"+g, msg) == fateOwed:
			t.finish(g, msg)
		}
	}
}

// listed reports whether the answer, a list of ids that the call did not change, has this id.
func (t *step) listed(msg string) bool {
	return slices.Contains(t.undone(), any(msg))
}

func (t *step) answer() string {
	if values, ok := t.out.reply.([]any); ok && len(values) > 0 {
		return fmt.Sprint(values[0])
	}
	return ""
}

func (t *step) learnPush() {
	o := t.op
	if t.u.barred(t.before, o) {
		return
	}
	result := "stored"
	switch {
	case t.out.failed != "":
		result = "failed"
	case t.answer() != "":
		result = "duplicate"
	case !t.placed(o.msg):
		result = "dropped"
	}
	stored := t.after.has("scheduled", o.msg) && !t.before.has("scheduled", o.msg)
	if record, ok := t.before.get("publishers", "p"); !t.before.has("~sent", o.msg) || !ok || recordNumber(record) < o.number {
		t.after.set("~sent", o.msg, fmt.Sprintf("%d %s %s", o.number, result, t.u.remembered(o.arg)))
	}
	if holder := t.before.keyHolder(); holder != o.msg && t.before.has("scheduled", holder) && !t.after.has("scheduled", holder) {
		t.end(holder)
	}
	if !stored {
		if result == "stored" && !t.before.has("~life", o.msg) {
			t.learnStored(o.msg)
		}
		return
	}
	if t.before.has("~life", o.msg) {
		t.after.set("~again", o.msg, "")
	}
	t.after.set("~life", o.msg, lifeLive)
}

// learnStored records a message that a torn push had stored before.
func (t *step) learnStored(msg string) {
	t.after.set("~life", msg, lifeLive)
	for _, g := range t.u.holders(t.after, msg) {
		t.after.set("~fate:"+g, msg, fateOwed)
	}
}

// learnRegister records which messages are not for a new group.
func (t *step) learnRegister() {
	for _, msg := range t.dueUnder("scheduled") {
		if t.u.joins {
			t.after.set("~came after:"+t.op.group, msg, "")
		}
	}
}

func (t *step) learnClaim() {
	o := t.op
	if o.arg == "new" {
		t.after.set("~requests:"+o.group, o.consumer, "")
	}
	for _, msg := range t.u.msgs() {
		if t.before.has("scheduled", msg) && !t.after.has("scheduled", msg) {
			for _, g := range registered(t.before) {
				if o.knows == knowsThen && g != o.group {
					continue
				}
				if t.after.value("~fate:"+g, msg) != fateDone {
					t.after.set("~fate:"+g, msg, fateOwed)
				}
			}
		}
	}
	for _, given := range t.claim.given {
		previous := "-"
		if last := strings.Fields(t.after.value("~last:"+o.group, given.msg)); len(last) > 0 {
			if previous = last[0]; previous == given.receipt {
				previous = last[2]
			}
		}
		t.after.set("~last:"+o.group, given.msg, fmt.Sprintf("%s %s %s", given.receipt, o.consumer, previous))
	}
}

// firstRequest is the number of each client's last request. Only the order of numbers matters, so
// the numbers in records are shifted when the client makes another request.
const firstRequest = 2

func (s *state) shift(o op) {
	by := o.number - firstRequest
	if by <= 0 || o.arg != "new" && o.arg != "lost" {
		return
	}
	key, field := "publishers", "z"
	if o.kind == "claim" {
		key, field = "claims:"+o.group, o.consumer
	}
	if value, ok := s.get(key, field); ok {
		s.set(key, field, withRecordNumber(value, max(0, recordNumber(value)-by)))
	}
}

// finish records that a group has settled a message, and removes what no longer matters.
func (t *step) finish(g, msg string) {
	t.after.remove("~view:"+g, msg)
	if t.after.has("~last:"+g, msg) {
		t.after.set("~last:"+g, msg, "1 - -")
	}
	if t.after.value("~life", msg) == lifeLive {
		t.after.set("~fate:"+g, msg, fateDone)
	}
	for _, g := range t.u.groups {
		if t.after.value("~fate:"+g, msg) == fateOwed {
			return
		}
	}
	if !t.after.has("scheduled", msg) {
		t.end(msg)
	}
}

// end records that a message has ended for all groups.
func (t *step) end(msg string) {
	t.after.set("~life", msg, lifeGone)
	for _, g := range t.u.groups {
		t.after.remove("~fate:"+g, msg)
		t.after.remove("~view:"+g, msg)
		if t.after.has("~last:"+g, msg) {
			t.after.set("~last:"+g, msg, "1 - -")
		}
	}
}
