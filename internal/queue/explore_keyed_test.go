package queue

import (
	"fmt"
	"slices"
)

// keyTruth checks cancel and reschedule.
func (t *step) keyTruth() string {
	o := t.op
	msg := t.before.meant(o)
	record, ok := t.before.get("publishers", "z")
	again := ok && recordNumber(record) == o.number
	switch answer := t.answer(); {
	case t.lacksHolder(msg) && answer != "groups":
		return "groups: not asked for"
	case o.knows == knowsNobody && answer == "groups":
		return t.nothing()
	case answer == "groups" && o.arg != "overdue":
		return "groups: the answer lacks them"
	case o.arg == "overdue":
		return t.nothing()
	case ok && recordNumber(record) > o.number:
		if answer != "none" {
			return "late call: does something"
		}
		return t.nothing()
	case again && !slices.Equal(texts(t.out.reply), recordedAnswer(record)):
		return fmt.Sprintf("another answer: %v, after %v", t.out.reply, recordedAnswer(record))
	case !again && !slices.Equal(texts(t.out.reply), t.standing(msg)):
		return fmt.Sprintf("standing: %v, want %v", t.out.reply, t.standing(msg))
	case !again && !slices.Equal(texts(t.out.reply), recordedAnswer(t.after.value("publishers", "z"))):
		return "record: it has another answer"
	case answer == "none":
		return t.nothing("publishers")
	case o.kind == "reschedule":
		return t.rescheduleTruth(msg)
	}
	mine := t.before.has("messages", msg) && (!again || t.before.keyLead() == msg)
	if t.before.has("taken", exploreKey) && t.after.has("taken", exploreKey) == mine {
		return "cancelled: the window stays, or ends in a repeated call"
	}
	return t.cancelTruth(msg)
}

// lacksHolder tells whether a call does not name a group that has the message, and that can be
// known to have it.
func (t *step) lacksHolder(msg string) bool {
	all := t.op
	all.knows = ""
	known := reached(t.before, all)
	return t.op.knows == knowsNobody && slices.ContainsFunc(t.u.holders(t.before, msg), func(g string) bool {
		return slices.Contains(known, g)
	})
}

// standing is the answer to a new call about a message.
func (t *step) standing(msg string) []string {
	if msg == "" {
		return []string{"none"}
	}
	scheduled := t.before.has("scheduled", msg)
	list := []string{"none", msg, map[bool]string{true: "scheduled"}[scheduled]}
	waits, held, dead := scheduled, false, false
	for _, g := range reached(t.before, t.op) {
		_, seen, unsure := tokenParts(t.before.value("attempts:"+g, msg))
		state := "done"
		switch {
		case t.before.has("unack:"+g, msg) && (t.op.kind == "cancel" || !t.before.has("queue:"+g, msg)):
			state, held = "in-delivery", true
			waits = waits || t.before.has("queue:"+g, msg) // after a torn file
		case t.before.has("queue:"+g, msg):
			state, waits = "queued", true
			if seen+unsure > 0 {
				state = "retrying"
			}
		case t.before.has("dead:"+g, msg):
			state = "dead"
		case scheduled:
			continue
		}
		dead = dead || t.before.has("dead:"+g, msg)
		list = append(list, g, state)
	}
	switch {
	case t.op.kind == "reschedule" && waits:
		list[0] = "rescheduled"
	case t.op.kind == "cancel" && (waits || held || !dead):
		list[0] = "cancelled"
	}
	return list
}

func (t *step) cancelTruth(msg string) string {
	keys, dead := t.reachedSets("queue:", "unack:"), false
	for _, g := range reached(t.before, t.op) {
		dead = dead || t.before.has("dead:"+g, msg)
	}
	if !dead {
		keys = append(keys, "messages")
	}
	for _, key := range keys {
		if t.after.has(key, msg) {
			return fmt.Sprintf("cancelled: %s is left in %s", msg, key)
		}
	}
	switch body := t.before.has("messages", msg); {
	case dead && body && !t.after.has("messages", msg):
		return "cancelled: the dead letter " + msg + " has lost its body"
	case !dead && t.after.keyLead() == msg:
		return "cancelled: the key still leads to " + msg
	}
	return t.others(msg)
}

// reachedSets are the keys that a call of cancel or reschedule can reach. Nothing shows that
// a group has a message if it is not registered and there is no other group.
func (t *step) reachedSets(kinds ...string) []string {
	keys := []string{"scheduled"}
	for _, g := range reached(t.before, t.op) {
		for _, kind := range kinds {
			keys = append(keys, kind+g)
		}
	}
	return keys
}

func (t *step) rescheduleTruth(msg string) string {
	var waiting []string
	for _, key := range t.reachedSets("queue:") {
		if t.before.has(key, msg) {
			waiting = append(waiting, key)
		}
	}
	for _, key := range waiting {
		if t.after.value(key, msg) != future {
			return "not rescheduled: in " + key
		}
	}
	return t.nothing(append(waiting, "publishers")...)
}
