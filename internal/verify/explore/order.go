package explore

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ordered checks turns and places. A message in delivery has its turn. The message of a turn is in delivery, waits for a retry or a
// claim, or is dead and halts its key. A message in line waits for such a message, and has its place. A torn file may break this
// until the next claim, but a message without its place would wait for ever.
func (u *Universe) ordered(s state) string {
	torn := slices.ContainsFunc(u.msgs(), s.relaxed)
	for _, g := range u.groups {
		places := 0
		for _, msg := range u.msgs() {
			orderKey := u.orderKeyOf(msg)
			due, waits := strings.CutPrefix(s.value("queue:"+g, msg), inLine)
			owner, busy := s.get("turns:"+g, orderKey)
			if waits {
				places++
			}
			switch {
			case waits && !s.has("blocked:"+g, placeOf(orderKey, due, msg)):
				return fmt.Sprintf("lost in line: %s has no place in %s", msg, g)
			case torn:
			case waits && !busy:
				return fmt.Sprintf("waits for nobody: %s in %s", msg, g)
			case s.has("unack:"+g, msg) && orderKey != "" && owner != msg:
				return fmt.Sprintf("two at a time: %s is in delivery to %s, and %q has the turn", msg, g, owner)
			case orderKey != "" && busy && !s.hasTurn(g, owner):
				return fmt.Sprintf("turn of nobody: %s in %s", owner, g)
			}
		}
		if !torn && len(s.all("blocked:"+g)) != places {
			return fmt.Sprintf("place of nobody: in %s", g)
		}
	}
	return ""
}

// placeOf returns a place in line. due is a class of times that are past.
func placeOf(orderKey, due, msg string) string {
	n, _ := strconv.Atoi(due[1:])
	return fmt.Sprintf("%s%016d%s", orderKey, 1000+n, msg)
}

// hasTurn reports whether a message that turns names still has its turn.
func (s state) hasTurn(g, msg string) bool {
	waits, queued := s.get("queue:"+g, msg)
	return s.has("unack:"+g, msg) || queued && !strings.HasPrefix(waits, inLine) || s.halts(g) && s.has("dead:"+g, msg)
}

// halts reports whether a dead message of a group halts its ordering key.
func (s state) halts(g string) bool { return s.value("settings", "limits:"+g) == haltingLimits }

// passes reports whether a change is part of passing a turn on: a change of turns or blocked, or of a message
// that was in line and has the turn now.
func (t *step) passes(change entry) bool {
	kind, g, _ := strings.Cut(change.key, ":")
	if kind == "turns" || kind == "blocked" {
		return true
	}
	was := t.before.value(change.key, change.field)
	return kind == "queue" && strings.HasPrefix(was, inLine) && isDue(change.value) &&
		t.after.value("turns:"+g, t.u.orderKeyOf(change.field)) == change.field
}

// inOrder checks that a message that gets a turn is the first in line. A message that is not settled, or is dead and
// halts its key, keeps its turn unless it is postponed.
func (t *step) inOrder() string {
	if slices.ContainsFunc(t.u.msgs(), t.after.relaxed) {
		return ""
	}
	for _, g := range t.u.groups {
		for _, msg := range t.u.msgs() {
			orderKey := t.u.orderKeyOf(msg)
			had, has := t.before.value("turns:"+g, orderKey), t.after.value("turns:"+g, orderKey)
			switch {
			case orderKey == "" || had == has:
			case had == msg && t.after.hasTurn(g, msg) && t.op.kind != "reschedule":
				return fmt.Sprintf("turn given up: by %s in %s", msg, g)
			case msg < has && t.aheadOf(has, g, msg):
				return fmt.Sprintf("order: %s gets the turn before %s in %s", has, msg, g)
			}
		}
	}
	return ""
}

// aheadOf reports whether a message is still in line, or due before one that a claim leases. A requeued message is
// due later than the messages in line, which the explorer cannot see.
func (t *step) aheadOf(other, g, msg string) bool {
	waits := t.after.value("queue:"+g, msg)
	return strings.HasPrefix(waits, inLine) || isDue(waits) &&
		slices.ContainsFunc(t.claim.given, func(given given) bool { return given.msg == other })
}

// heals reports whether a claim repairs turns and places that a torn file has left.
func (t *step) heals() bool {
	torn := slices.ContainsFunc(t.u.msgs(), t.before.relaxed)
	return torn && slices.ContainsFunc(diff(t.before, t.after), func(change entry) bool {
		return change.key == "turns:"+t.op.group || change.key == "blocked:"+t.op.group
	})
}

// healed checks that, after a claim, each message in line waits for a message that has its turn.
func (t *step) healed() string {
	g := t.op.group
	for _, msg := range t.u.msgs() {
		owner := t.after.value("turns:"+g, t.u.orderKeyOf(msg))
		if strings.HasPrefix(t.after.value("queue:"+g, msg), inLine) && !t.after.hasTurn(g, owner) {
			return fmt.Sprintf("not healed: %s waits for %q in %s", msg, owner, g)
		}
	}
	return ""
}
