package explore

import (
	"fmt"
	"slices"
	"strings"
)

// invariants returns the violation in a state; "" if there is none. The text before the colon names
// the kind of violation.
func (u *Universe) invariants(s state) string {
	for _, msg := range u.msgs() {
		check := u.strict
		if s.relaxed(msg) {
			check = u.weak
		}
		if bad := check(s, msg); bad != "" {
			return bad
		}
	}
	if bad := u.limited(s); bad != "" {
		return bad
	}
	if bad := u.ordered(s); bad != "" {
		return bad
	}
	if isLater(s.value("dedup", theKey)) && !slices.ContainsFunc(u.msgs(), func(msg string) bool {
		return s.has("~life", msg) || s.has("scheduled", msg) || len(u.holders(s, msg)) > 0
	}) {
		return "window of nothing: no message was stored"
	}
	holder, held := s.get("keys", theKey)
	holder, lost := strings.CutPrefix(holder, lostKey)
	nowhere := !s.has("scheduled", holder) && len(u.holders(s, holder)) == 0
	switch {
	case !held, s.relaxed(holder) && !s.has("messages", holder): // a message without a body holds nothing
	case nowhere:
		return "key held by nothing: " + holder + " is nowhere"
	case lost, s.relaxed(holder):
	case !s.has("scheduled", holder) && !u.waits(s, holder):
		return "key held by a dead message: " + holder
	}
	return ""
}

// limited checks that no group holds more than its limit, and that a group that has capacity is not
// in at_limit. A torn file may repeat a claim, or do half of an ack.
func (u *Universe) limited(s state) string {
	for _, g := range u.groups {
		held := len(s.all("unack:" + g))
		torn := slices.ContainsFunc(u.msgs(), s.relaxed)
		switch {
		case u.limit == 0 || torn:
		case held > u.limit:
			return fmt.Sprintf("over the limit: %s holds %d messages", g, held)
		case held < u.limit && s.has("at_limit", g):
			return "no wake: " + g + " still waits for room, though there is some"
		}
	}
	return ""
}

// waits reports whether a message is still to be handled by a group.
func (u *Universe) waits(s state, msg string) bool {
	return slices.ContainsFunc(u.groups, func(g string) bool { return s.has("queue:"+g, msg) || s.has("unack:"+g, msg) })
}

// strict checks what holds without torn files, and without a lost record that lets a call run
// twice. Each message is where the clients know it to be, in one state per group, and all other
// data belong to messages that exist.
func (u *Universe) strict(s state, msg string) string {
	fanned := slices.ContainsFunc(u.groups, func(g string) bool { return s.has("~fate:"+g, msg) })
	alive := s.value("~life", msg) == lifeLive
	scheduled := s.has("scheduled", msg)
	switch {
	case scheduled && !alive:
		return "reappears: " + msg + " is scheduled, but it has ended or was never stored"
	case scheduled && fanned:
		return "two states: " + msg + " is scheduled, and was given to the groups"
	case alive && !scheduled && !fanned:
		return "lost: " + msg + " is nowhere"
	}
	for _, g := range u.groups {
		places := s.places(g, msg)
		waits := alive && s.value("~fate:"+g, msg) == fateOwed
		switch {
		case waits && len(places) == 0:
			return fmt.Sprintf("lost: %s is nowhere for %s", msg, g)
		case !waits && len(places) > 0:
			return fmt.Sprintf("reappears: %s is in %v, but %s is done with it", msg, places, g)
		case len(places) > 1:
			return fmt.Sprintf("two states: %s is in %v", msg, places)
		}
	}
	return u.bookkeeping(s, msg, scheduled || len(u.holders(s, msg)) > 0)
}

// bookkeeping checks the keys other than the sets.
func (u *Universe) bookkeeping(s state, msg string, held bool) string {
	switch {
	case held && !s.has("messages", msg):
		return "body lost: of " + msg
	case !held && s.has("messages", msg):
		return "orphan body: of " + msg
	case !s.has("scheduled", msg) && !s.refsExact(msg, u.holders(s, msg)), !held && s.has("refs", msg):
		return fmt.Sprintf("refs wrong: %q of %s, held by %v", s.value("refs", msg), msg, u.holders(s, msg))
	}
	for _, g := range u.groups {
		holds := len(s.places(g, msg)) > 0
		switch {
		case s.has("attempts:"+g, msg) && !holds, s.has("nack_metadata:"+g, msg) && !holds:
			return fmt.Sprintf("bookkeeping left: of %s for %s", msg, g)
		case s.has("reasons:"+g, msg) != s.has("dead:"+g, msg):
			return fmt.Sprintf("reasons wrong: of %s for %s", msg, g)
		}
	}
	return ""
}

// twice checks a message that was stored twice: when a group has settled it, its body is removed,
// although the second copy may still wait.
func (u *Universe) twice(s state, msg string) string {
	placed := s.has("scheduled", msg) || len(u.holders(s, msg)) > 0
	settled := s.value("~life", msg) != lifeLive
	for _, g := range u.groups {
		settled = settled || s.value("~fate:"+g, msg) == fateDone
	}
	switch {
	case !settled && !placed:
		return "lost: " + msg + " is nowhere"
	case !settled && !s.has("messages", msg):
		return "body lost: of " + msg
	}
	return ""
}

// weak checks what holds after any damage to the append-only file. A settled message may be back, be in two states, or lack
// its body, and some of its data may stay.
func (u *Universe) weak(s state, msg string) string {
	if s.has("~again", msg) {
		return u.twice(s, msg)
	}
	placed := s.has("scheduled", msg) || len(u.holders(s, msg)) > 0
	if s.value("~life", msg) == lifeLive && s.value("~torn", msg) != "*" && !placed && u.unsettled(s, msg) {
		return "lost: " + msg + " is nowhere"
	}
	for _, g := range registered(s) {
		if s.has("scheduled", msg) && !s.has("messages", msg) && !s.settled(g, msg) {
			return fmt.Sprintf("body lost: %s, which %s has yet to get", msg, g)
		}
	}
	for _, g := range u.groups {
		switch waits := s.value("~fate:"+g, msg) == fateOwed && !s.settled(g, msg); {
		case waits && !s.has("scheduled", msg) && len(s.places(g, msg)) == 0:
			return fmt.Sprintf("lost: %s is nowhere for %s, which waits for it", msg, g)
		case waits && !s.has("messages", msg):
			return fmt.Sprintf("body lost: of %s, for which %s waits", msg, g)
		}
	}
	if s.value("~life", msg) == lifeLive && u.unsettled(s, msg) && !s.has("messages", msg) && s.value("~torn", msg) != "*" {
		return "body lost: of " + msg
	}
	return ""
}

// unsettled reports whether a message still has to be delivered to a group.
func (u *Universe) unsettled(s state, msg string) bool {
	fanned := false
	for _, g := range u.groups {
		fanned = fanned || s.has("~fate:"+g, msg)
		if s.value("~fate:"+g, msg) == fateOwed && !s.settled(g, msg) {
			return true
		}
	}
	return !fanned
}
