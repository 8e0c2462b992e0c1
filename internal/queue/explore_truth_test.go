package queue

import (
	"fmt"
	"slices"
	"strings"
)

// truth returns what was wrong with an answer or the effect of a call; "" if nothing was. It
// compares the states before and after, so it applies to every state.
func (t *step) truth() string {
	if t.op.kind != "push" && t.out.failed != "" {
		return "failed: " + t.out.failed
	}
	if bad := t.frame(); bad != "" || t.op.arg == "lost" {
		return bad
	}
	switch t.op.kind {
	case "push":
		return t.pushTruth()
	case "claim":
		return t.claimTruth()
	case "ack", "discard":
		return t.endTruth()
	case "nack", "defer", "condemn", "release", "bury", "extend":
		return t.fencedTruth()
	case "put away":
		return t.putAwayTruth()
	case "requeue":
		return t.requeueTruth()
	case "cancel", "reschedule":
		return t.keyTruth()
	}
	return ""
}

// frame checks that an operation on one message changes no other message and no other
// group. Other functions check what claims move and pushes replace.
func (t *step) frame() string {
	o := t.op
	if o.kind == "claim" || o.kind == "push" || o.kind == "lapse" || o.msg == "" {
		return ""
	}
	for _, change := range diff(t.before, t.after) {
		_, group, ofGroup := strings.Cut(change.key, ":")
		switch {
		case strings.HasPrefix(change.key, "~"):
		case change.field != o.msg && change.key != "keys" && change.key != "full":
			return fmt.Sprintf("frame: %s changed %s of %s", o.kind, change.key, change.field)
		case ofGroup && o.group != "" && group != o.group:
			return fmt.Sprintf("frame: %s changed %s", o.kind, change.key)
		}
	}
	return ""
}

// diff lists the entries of Redis that differ; those that are gone have the value "".
func diff(before, after explored) (list []entry) {
	before, after = before.redis(), after.redis()
	i, j := 0, 0
	for i < len(before) || j < len(after) {
		order := 0
		switch {
		case i == len(before):
			order = 1
		case j == len(after):
			order = -1
		default:
			order = compareEntries(before[i], after[j])
		}
		switch {
		case order < 0:
			list = append(list, entry{before[i].key, before[i].field, ""})
			i++
		case order > 0:
			list = append(list, after[j])
			j++
		default:
			if before[i].value != after[j].value {
				list = append(list, after[j])
			}
			i, j = i+1, j+1
		}
	}
	return list
}

// nothing checks that nothing changed, except some keys. A torn file may leave the mark of a
// group that has room: whoever sees it removes it.
func (t *step) nothing(but ...string) string {
	for _, change := range diff(t.before, t.after) {
		left := change.key == "full" && len(t.before.all("unack:"+change.field)) < t.u.limit && !t.after.has("full", change.field)
		if !slices.Contains(but, change.key) && !left {
			return fmt.Sprintf("no effect: %s says that it did nothing, but changed %s of %s", t.op.kind, change.key, change.field)
		}
	}
	return ""
}

func (t *step) pushTruth() string {
	o, msg := t.op, t.op.msg
	record, recorded := t.before.get("publishers", "p")
	sent, again := t.before.get("~sent", msg)
	refused := t.answer() != ""
	holder := t.before.keyHolder()
	held := t.u.keyed && holder != "" && holder != msg
	taken := held || o.arg != string(ReplaceDuplicates) && t.before.inWindow(msg)
	switch {
	case t.out.failed != "":
		if !recorded || recordNumber(record) < o.number || recordNumber(record) == o.number && again && !t.u.borrowed(o) {
			return "failed: " + t.out.failed
		}
		return t.nothing("publishers")
	case recorded && recordNumber(record) >= o.number:
		if !again && !t.placed(msg) && (!t.before.has("~torn", "restarted") || t.u.borrowed(o)) {
			return "not stored: success with an old number"
		}
		if again && recordNumber(record) == o.number && refused != strings.Contains(sent, " refused ") {
			return "another answer: for a batch that was sent again"
		}
		return t.nothing("publishers")
	case taken && o.arg == string(RejectDuplicates):
		if !refused {
			return "not refused: the key is in use"
		}
		return t.dropped()
	case refused:
		return "refused: the key is free or its own"
	case taken && o.arg == string(IgnoreDuplicates):
		return t.dropped()
	case !t.after.has("messages", msg) || !t.placed(msg):
		return "not stored: success"
	case t.u.keyed && t.after.keyHolder() != msg && !again:
		return "key not taken: by " + msg
	case t.u.window && t.after.value("taken", exploreKey) != future:
		return "no window: " + msg + " is stored"
	case held && t.before.has("scheduled", holder):
		return t.replaced(holder)
	}
	return t.others(msg)
}

// inWindow tells whether the key is taken although no message need hold it.
func (s explored) inWindow(msg string) bool {
	return isLater(s.value("taken", exploreKey)) && s.value("keys", exploreKey) != msg
}

// dropped checks that nothing changed, except that a window that was over may be gone.
func (t *step) dropped() string {
	if isLater(t.before.value("taken", exploreKey)) {
		return t.nothing("publishers")
	}
	return t.nothing("publishers", "taken")
}

// placed tells whether a message is in any set now.
func (t *step) placed(msg string) bool {
	return t.after.has("scheduled", msg) || len(t.u.holders(t.after, msg)) > 0
}

// borrowed tells whether a push uses the number of another message's batch.
func (u *universe) borrowed(o op) bool { return o.number-1 != slices.Index(u.msgs(), o.msg) }

// replaced checks that the message that held the key is gone.
func (t *step) replaced(holder string) string {
	for _, e := range t.after.redis() {
		if e.field == holder && (e.key == "scheduled" || !t.before.relaxed(holder)) {
			return fmt.Sprintf("not replaced: %s is left in %s", holder, e.key)
		}
	}
	return ""
}

// others checks that nothing changed for other messages.
func (t *step) others(msg string) string {
	for _, change := range diff(t.before, t.after) {
		if change.field != msg && change.key != "publishers" && change.key != "keys" && change.key != "taken" {
			return fmt.Sprintf("frame: %s changed %s of %s", t.op.kind, change.key, change.field)
		}
	}
	return ""
}
