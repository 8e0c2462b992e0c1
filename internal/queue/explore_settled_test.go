package queue

import (
	"fmt"
	"slices"
	"strings"
)

// endTruth checks ack and discard: the message leaves the group.
func (t *step) endTruth() string {
	o := t.op
	set := map[string]string{"ack": "unack:", "discard": "dead:"}[o.kind] + o.group
	if t.before.has(set, o.msg) == t.listed(o.msg) {
		return fmt.Sprintf("%s: the message was in %s, but the answer says the opposite", o.kind, set)
	}
	if t.listed(o.msg) {
		return t.nothing()
	}
	for _, key := range []string{set, "attempts:" + o.group, "changed:" + o.group} {
		if t.after.has(key, o.msg) {
			return fmt.Sprintf("%s: %s is left in %s", o.kind, o.msg, key)
		}
	}
	if t.after.needs(o.group, o.msg) {
		return o.kind + ": refs still has the group"
	}
	return ""
}

// fencedTruth checks what only the current delivery may do.
func (t *step) fencedTruth() string {
	o := t.op
	repeated := t.before.repeats(o)
	if (t.before.holds(o.group, o.msg, o.token) || repeated) == t.listed(o.msg) {
		return "fence: " + o.kind + " says that its token is stale though it is current, or the other way round"
	}
	if t.listed(o.msg) || repeated {
		return t.nothing()
	}
	into, entry := t.wantSettled()
	places := t.after.places(o.group, o.msg)
	due, kind, _ := strings.Cut(into, " ")
	if !slices.Contains(places, kind) || due != t.after.value(kind, o.msg) {
		return fmt.Sprintf("%s: %s is in %v, want %s", o.kind, o.msg, places, into)
	}
	if kind != "unack:"+o.group && slices.Contains(places, "unack:"+o.group) {
		return fmt.Sprintf("%s: %s is still in unack", o.kind, o.msg)
	}
	if got := t.after.value("attempts:"+o.group, o.msg); got != entry {
		return fmt.Sprintf("%s: leaves %q in attempts, want %q", o.kind, got, entry)
	}
	want := map[string]string{"nack": exhausted(entry, t.u.most), "bury": "bad", "condemn": condemned}[o.kind]
	if got := t.after.value("reasons:"+o.group, o.msg); kind == "dead:"+o.group && got != want {
		return "reason: " + got + ", want " + want
	}
	if kind == "dead:"+o.group {
		return t.keyLost(o.msg)
	}
	return ""
}

// keyLost checks that a dead letter has lost its key and that the key leads to it.
func (t *step) keyLost(msg string) string {
	switch before, after := t.before.value("keys", exploreKey), t.after.value("keys", exploreKey); {
	case after == msg:
		return t.op.kind + ": the dead letter keeps its key"
	case before == msg && after != lostKey+msg:
		return t.op.kind + ": the key does not lead to the dead letter"
	case before != msg && after != before && after != lostKey+before:
		return t.op.kind + ": the key of another message is gone"
	}
	return ""
}

// repeats tells whether a call has buried its message before: its reply may be lost, so it
// gets the same answer again.
func (s explored) repeats(o op) bool {
	reason, dead := s.get("reasons:"+o.group, o.msg)
	if !dead || !s.has("dead:"+o.group, o.msg) || s.holds(o.group, o.msg, o.token) {
		return false
	}
	entry := s.value("attempts:"+o.group, o.msg)
	switch o.kind {
	case "nack":
		return entry == confirmed(o.token)
	case "condemn":
		return entry == confirmed(o.token) && reason == condemned
	case "bury":
		return reason == "bad" && fence(entry) == fence(o.token)
	}
	return false
}

// wantSettled is where a message has to go, and what attempts must have.
func (t *step) wantSettled() (into, entry string) {
	o := t.op
	entry = t.before.entryAfter(o)
	switch {
	case o.kind == "nack" && exhausted(entry, t.u.most) == "", o.kind == "defer":
		return future + " queue:" + o.group, entry
	case o.kind == "release":
		return past + " queue:" + o.group, entry
	case o.kind == "extend":
		return t.u.leaseOf("") + " unack:" + o.group, entry
	default:
		return past + " dead:" + o.group, entry
	}
}

// putAwayTruth checks a burial by a person: from queue or unack, whoever has the message.
func (t *step) putAwayTruth() string {
	o := t.op
	waits := t.before.has("queue:"+o.group, o.msg) || t.before.has("unack:"+o.group, o.msg)
	repeated := !waits && t.before.has("dead:"+o.group, o.msg) && t.before.value("reasons:"+o.group, o.msg) == putAway
	switch {
	case (waits || repeated) == t.listed(o.msg):
		return "put away: the answer says the opposite"
	case !waits:
		return t.nothing()
	case !slices.Equal(t.after.places(o.group, o.msg), []string{"dead:" + o.group}):
		return fmt.Sprintf("put away: it is in %v", t.after.places(o.group, o.msg))
	case t.after.value("reasons:"+o.group, o.msg) != putAway:
		return "put away: for another reason"
	case t.after.value("attempts:"+o.group, o.msg) != t.before.value("attempts:"+o.group, o.msg):
		return "put away: attempts has changed"
	}
	return t.keyLost(o.msg)
}

func (t *step) requeueTruth() string {
	o := t.op
	if t.before.has("dead:"+o.group, o.msg) == t.listed(o.msg) {
		return "requeue: says that a dead letter is none, or the other way round"
	}
	if t.listed(o.msg) {
		return t.nothing()
	}
	switch {
	case t.after.has("dead:"+o.group, o.msg) || t.after.has("reasons:"+o.group, o.msg):
		return "requeue: it is still a dead letter"
	case t.after.value("queue:"+o.group, o.msg) != past:
		return "requeue: it is not due"
	case t.after.value("attempts:"+o.group, o.msg) != t.before.entryAfter(o):
		return "requeue: leaves " + t.after.value("attempts:"+o.group, o.msg) + " in attempts"
	}
	return ""
}

// replayTruth checks a repeated claim: it gets what it still holds.
func (t *step) replayTruth(record string) string {
	o := t.op
	var want, got []string
	was := recordedClaim(record)
	for _, g := range was.given {
		if t.before.holds(o.group, g.msg, g.token) && t.before.value("unack:"+o.group, g.msg) == was.deadline && t.before.has("messages", g.msg) {
			want = append(want, g.msg+" "+g.token)
		}
	}
	for _, g := range t.claim.given {
		got = append(got, g.msg+" "+g.token)
		last := strings.Fields(t.before.value("~last:"+o.group, g.msg))
		if len(last) == 3 && last[0] == g.token && last[1] != o.consumer && last[1] != "-" && !t.before.has("~again", g.msg) {
			return fmt.Sprintf("one token at two consumers: %s of %s, at %s and at %s", g.token, g.msg, last[1], o.consumer)
		}
	}
	if !slices.Equal(want, got) {
		return fmt.Sprintf("claim again: got %v, want %v", got, want)
	}
	buried := []string{}
	for i := 0; i < len(was.buried); i += 2 {
		if t.before.has("dead:"+o.group, was.buried[i]) {
			buried = append(buried, was.buried[i:i+2]...)
		}
	}
	if !slices.Equal(buried, t.claim.buried) {
		return fmt.Sprintf("claim again: reports the dead letters %v, want %v", t.claim.buried, buried)
	}
	if slices.ContainsFunc(t.u.msgs(), t.before.relaxed) {
		return "" // where else they wait has to be seen to
	}
	return t.nothing("unack:"+o.group, "claims:"+o.group)
}
