package explore

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// truth returns the violation in an answer or in the effect of a call; "" if there is none. It
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
	case "outcome":
		return t.outcomeTruth()
	case "claim":
		return t.claimTruth()
	case "ack", "discard":
		return t.endTruth()
	case "nack", "defer", "condemn", "release", "bury", "extend":
		return t.fencedTruth()
	case "bury any":
		return t.buryAnyTruth()
	case "requeue":
		return t.requeueTruth()
	case "cancel", "reschedule":
		return t.keyTruth()
	}
	return ""
}

// frame checks that an operation on one message changes no other message and no other group. Moves
// by claims and replacements by pushes are checked elsewhere.
func (t *step) frame() string {
	o := t.op
	if o.kind == "claim" || o.kind == "push" || o.kind == "lapse" || o.msg == "" {
		return ""
	}
	for _, change := range diff(t.before, t.after) {
		_, group, ofGroup := strings.Cut(change.key, ":")
		switch {
		case strings.HasPrefix(change.key, "~"), t.passes(change):
		case change.field != o.msg && change.key != "keys" && change.key != "at_limit":
			return fmt.Sprintf("frame: %s changed %s of %s", o.kind, change.key, change.field)
		case ofGroup && o.group != "" && group != o.group:
			return fmt.Sprintf("frame: %s changed %s", o.kind, change.key)
		}
	}
	return ""
}

// diff lists the entries of Redis that differ; removed ones have the value "".
func diff(before, after state) (list []entry) {
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

// nothing checks that nothing changed, except some keys. A torn file may leave a group with
// capacity in at_limit, and a leased message in the queue, too: the next reader removes them.
func (t *step) nothing(but ...string) string {
	for _, change := range diff(t.before, t.after) {
		left := change.key == "at_limit" && len(t.before.all("unack:"+change.field)) < t.u.limit && !t.after.has("at_limit", change.field)
		if group, queued := strings.CutPrefix(change.key, "queue:"); queued && t.op.kind == "claim" {
			left = change.value == "" && t.after.has("unack:"+group, change.field)
		}
		if !slices.Contains(but, change.key) && !left && (len(but) <= 1 || !t.passes(change)) {
			return fmt.Sprintf("no effect: %s says that it did nothing, but changed %s of %s", t.op.kind, change.key, change.field)
		}
	}
	return ""
}

func (t *step) pushTruth() string {
	o, msg := t.op, t.op.msg
	record, recorded := t.before.get("publishers", "p")
	sent, again := t.before.get("~sent", msg)
	reported := t.answer() != "" // as a duplicate
	holder := t.before.keyHolder()
	held := t.u.keyed && holder != "" && holder != msg
	taken := held || o.arg != string(queue.ReplaceDuplicates) && t.before.inWindow(msg)
	switch {
	case t.u.barred(t.before, o):
		if t.out.failed == "" {
			return "not failed: the batch is barred"
		}
		return t.nothing("publishers")
	case t.out.failed != "":
		if !recorded || recordNumber(record) < o.number || recordNumber(record) == o.number && again && !t.u.borrowed(o) {
			return "failed: " + t.out.failed
		}
		return t.nothing("publishers")
	case recorded && recordNumber(record) >= o.number:
		if !again && !t.placed(msg) && (!t.before.has("~torn", "restarted") || t.u.borrowed(o)) {
			return "not stored: success with an old number"
		}
		if again && recordNumber(record) == o.number && reported != strings.Contains(sent, " duplicate ") {
			return "another answer: for a batch that was sent again"
		}
		return t.nothing("publishers")
	case taken && o.arg != string(queue.ReplaceDuplicates):
		if !reported {
			return "no duplicate: the key is in use"
		}
		return t.dropped()
	case reported:
		return "a duplicate: the key is free or its own"
	case !t.after.has("messages", msg) || !t.placed(msg):
		return "not stored: success"
	case t.u.keyed && t.after.keyHolder() != msg && !again:
		return "key not taken: by " + msg
	case t.u.window && t.after.value("dedup", theKey) != future:
		return "no window: " + msg + " is stored"
	case held && t.before.has("scheduled", holder):
		return t.replaced(holder)
	}
	return t.others(msg)
}

// barred reports whether a push is a late copy of a barred batch.
func (u *Universe) barred(s state, o op) bool {
	return s.has("~barred", o.msg) && o.number <= u.messages
}

func (t *step) outcomeTruth() string {
	o, answer := t.op, t.answer()
	record, recorded := t.before.get("publishers", "p")
	sent, known := t.before.get("~sent", o.target)
	after, _ := t.after.get("publishers", "p")
	known = known && strings.HasPrefix(sent, strconv.Itoa(o.number)+" ") && !strings.Contains(sent, " failed ")
	switch {
	case (answer == "later") != (recorded && recordNumber(record) > o.number):
		return "another outcome: " + answer + ", the record is " + record
	case answer == "barred" && (known || !strings.HasPrefix(after, strconv.Itoa(o.number)+" ")):
		return "not barred: the batch is stored, or may be"
	case answer == "stored" && !known:
		return "not stored: the batch whose outcome is asked for"
	}
	return t.nothing("publishers")
}

// inWindow reports whether the key is in use even if no message holds it.
func (s state) inWindow(msg string) bool {
	return isLater(s.value("dedup", theKey)) && s.value("keys", theKey) != msg
}

// dropped checks that nothing changed, except that an expired window may have been removed.
func (t *step) dropped() string {
	if isLater(t.before.value("dedup", theKey)) {
		return t.nothing("publishers")
	}
	return t.nothing("publishers", "dedup")
}

// placed reports whether a message is in any set now.
func (t *step) placed(msg string) bool {
	return t.after.has("scheduled", msg) || len(t.u.holders(t.after, msg)) > 0
}

// borrowed reports whether a push uses the number of another message's batch.
func (u *Universe) borrowed(o op) bool { return o.number-1 != slices.Index(u.msgs(), o.msg) }

// replaced checks that the message that held the key was removed.
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
		if !t.passes(change) && change.field != msg && change.key != "publishers" && change.key != "keys" && change.key != "dedup" {
			return fmt.Sprintf("frame: %s changed %s of %s", t.op.kind, change.key, change.field)
		}
	}
	return ""
}

// endTruth checks ack, of the current delivery, and discard: the message leaves the group.
func (t *step) endTruth() string {
	o := t.op
	set := map[string]string{"ack": "unack:", "discard": "dead:"}[o.kind] + o.group
	if o.kind == "ack" && t.before.holds(o.group, o.msg, o.receipt) == t.listed(o.msg) {
		return "token: ack says that its receipt is stale though it is current, or the other way round"
	}
	if o.kind == "discard" && t.before.has(set, o.msg) == t.listed(o.msg) {
		return "discard: the message was a dead message, but the answer says the opposite"
	}
	if t.listed(o.msg) {
		return t.nothing()
	}
	for _, key := range []string{set, "attempts:" + o.group, "nack_metadata:" + o.group} {
		if t.after.has(key, o.msg) {
			return fmt.Sprintf("%s: %s is left in %s", o.kind, o.msg, key)
		}
	}
	if t.after.needs(o.group, o.msg) {
		return o.kind + ": refs still has the group"
	}
	return ""
}

// fencedTruth checks operations that need the current delivery.
func (t *step) fencedTruth() string {
	o := t.op
	repeated := t.before.repeats(o)
	if (t.before.holds(o.group, o.msg, o.receipt) || repeated) == t.listed(o.msg) {
		return "token: " + o.kind + " says that its receipt is stale though it is current, or the other way round"
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

// keyLost checks that a dead message has lost its key and that the key leads to it.
func (t *step) keyLost(msg string) string {
	switch before, after := t.before.value("keys", theKey), t.after.value("keys", theKey); {
	case after == msg:
		return t.op.kind + ": the dead message keeps its key"
	case before == msg && after != lostKey+msg:
		return t.op.kind + ": the key does not lead to the dead message"
	case before != msg && after != before && after != lostKey+before:
		return t.op.kind + ": the key of another message is gone"
	}
	return ""
}

// repeats reports whether an earlier attempt of a call has buried its message: the reply may be
// lost, so the call gets the same answer.
func (s state) repeats(o op) bool {
	reason, dead := s.get("reasons:"+o.group, o.msg)
	if !dead || !s.has("dead:"+o.group, o.msg) || s.holds(o.group, o.msg, o.receipt) {
		return false
	}
	entry := s.value("attempts:"+o.group, o.msg)
	switch o.kind {
	case "nack":
		return entry == confirmed(o.receipt)
	case "condemn":
		return entry == confirmed(o.receipt) && reason == condemned
	case "bury":
		return reason == "bad" && token(entry) == token(o.receipt)
	}
	return false
}

// wantSettled returns the set that a message must be moved to, and its entry in attempts.
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

// buryAnyTruth checks a burial by an operator: from queue or unack, whichever consumer has the message.
func (t *step) buryAnyTruth() string {
	o := t.op
	waits := t.before.has("queue:"+o.group, o.msg) || t.before.has("unack:"+o.group, o.msg)
	repeated := !waits && t.before.has("dead:"+o.group, o.msg) && t.before.value("reasons:"+o.group, o.msg) == putAway
	switch {
	case (waits || repeated) == t.listed(o.msg):
		return "bury any: the answer says the opposite"
	case !waits:
		return t.nothing()
	case !slices.Equal(t.after.places(o.group, o.msg), []string{"dead:" + o.group}):
		return fmt.Sprintf("bury any: it is in %v", t.after.places(o.group, o.msg))
	case t.after.value("reasons:"+o.group, o.msg) != putAway:
		return "bury any: for another reason"
	case t.after.value("attempts:"+o.group, o.msg) != t.before.value("attempts:"+o.group, o.msg):
		return "bury any: attempts has changed"
	}
	return t.keyLost(o.msg)
}

func (t *step) requeueTruth() string {
	o := t.op
	if t.before.has("dead:"+o.group, o.msg) == t.listed(o.msg) {
		return "requeue: says that a dead message is none, or the other way round"
	}
	if t.listed(o.msg) {
		return t.nothing()
	}
	switch {
	case t.after.has("dead:"+o.group, o.msg) || t.after.has("reasons:"+o.group, o.msg):
		return "requeue: it is still a dead message"
	case t.after.value("queue:"+o.group, o.msg) != past:
		return "requeue: it is not due"
	case t.after.value("attempts:"+o.group, o.msg) != t.before.entryAfter(o):
		return "requeue: leaves " + t.after.value("attempts:"+o.group, o.msg) + " in attempts"
	}
	return ""
}

// replayTruth checks a repeated claim: it gets the messages that are still held and fit its limit, unless the leases are over.
func (t *step) replayTruth(record string) string {
	o := t.op
	var want, back, got []string
	was := recordedClaim(record)
	for _, g := range was.given {
		switch {
		case !t.before.holds(o.group, g.msg, g.receipt) || t.before.value("unack:"+o.group, g.msg) != was.deadline || !t.before.has("messages", g.msg):
		case len(want) == o.limit || !isLater(was.deadline):
			back = append(back, g.msg+" "+g.receipt)
		default:
			want = append(want, g.msg+" "+g.receipt)
		}
	}
	for _, g := range t.claim.given {
		got = append(got, g.msg+" "+g.receipt)
		last := strings.Fields(t.before.value("~last:"+o.group, g.msg))
		if len(last) == 3 && last[0] == g.receipt && last[1] != o.consumer && last[1] != "-" && !t.before.has("~again", g.msg) {
			return fmt.Sprintf("one receipt at two consumers: %s of %s, at %s and at %s", g.receipt, g.msg, last[1], o.consumer)
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
		return fmt.Sprintf("claim again: reports the dead messages %v, want %v", t.claim.buried, buried)
	}
	if slices.ContainsFunc(t.u.msgs(), t.before.relaxed) {
		return "" // where else they wait has to be seen to
	}
	return t.backTruth(was, want, back)
}

// backTruth checks the effect of a repeated claim: it returned some messages to the queue unseen, and kept others, with their leases.
func (t *step) backTruth(was claimed, kept, back []string) string {
	g := t.op.group
	changed := []string{"claims:" + g}
	for _, delivery := range back {
		msg, receipt, _ := strings.Cut(delivery, " ")
		changed = []string{"claims:" + g, "unack:" + g, "queue:" + g, "attempts:" + g, "at_limit"}
		switch {
		case !slices.Equal(t.after.places(g, msg), []string{"queue:" + g}) || t.after.value("queue:"+g, msg) != past:
			return fmt.Sprintf("released: %s is in %v", msg, t.after.places(g, msg))
		case t.after.value("attempts:"+g, msg) != unseen(receipt):
			return fmt.Sprintf("released: %s of %s leaves %q in attempts", receipt, msg, t.after.value("attempts:"+g, msg))
		}
	}
	var left []string
	is := recordedClaim(t.after.value("claims:"+g, t.op.consumer))
	for _, given := range is.given {
		left = append(left, given.msg+" "+given.receipt)
	}
	if !slices.Equal(kept, left) || is.deadline != was.deadline {
		return fmt.Sprintf("record: has %v until %s, want %v until %s", left, is.deadline, kept, was.deadline)
	}
	return t.nothing(changed...)
}

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
	case !again && !slices.Equal(byGroup(texts(t.out.reply)), byGroup(t.stateFor(msg))):
		return fmt.Sprintf("state: %v, want %v", t.out.reply, t.stateFor(msg))
	case !again && !slices.Equal(texts(t.out.reply), recordedAnswer(t.after.value("publishers", "z"))):
		return "record: it has another answer"
	case answer == "none":
		return t.nothing("publishers")
	case o.kind == "reschedule":
		return t.rescheduleTruth(msg)
	}
	mine := t.before.has("messages", msg) && (!again || t.before.keyLead() == msg)
	if t.before.has("dedup", theKey) && t.after.has("dedup", theKey) == mine {
		return "cancelled: the window stays, or ends in a repeated call"
	}
	return t.cancelTruth(msg)
}

// lacksHolder reports whether a call does not name a group that has the message, as far as the data
// show that.
func (t *step) lacksHolder(msg string) bool {
	all := t.op
	all.knows = ""
	known := reached(t.before, all)
	return t.op.knows == knowsNobody && slices.ContainsFunc(t.u.holders(t.before, msg), func(g string) bool {
		return slices.Contains(known, g)
	})
}

// byGroup sorts the groups of an answer, each with its state.
func byGroup(answer []string) []string {
	if len(answer) < 3 {
		return answer
	}
	pairs := slices.SortedFunc(slices.Chunk(answer[3:], 2), slices.Compare)
	return slices.Concat(answer[:3], slices.Concat(pairs...))
}

// stateFor returns the answer to a new call for a message.
func (t *step) stateFor(msg string) []string {
	if msg == "" {
		return []string{"none"}
	}
	scheduled := t.before.has("scheduled", msg)
	list := []string{"none", msg, map[bool]string{true: "scheduled"}[scheduled]}
	waits, held, dead := scheduled, false, false
	for _, g := range reached(t.before, t.op) {
		_, seen, unsure := receiptParts(t.before.value("attempts:"+g, msg))
		var place string
		switch {
		case t.before.has("unack:"+g, msg) && (t.op.kind == "cancel" || !t.before.has("queue:"+g, msg)):
			place, held = "in-delivery", true
			waits = waits || t.before.has("queue:"+g, msg) // after a torn file
		case t.before.has("queue:"+g, msg):
			place, waits = "queued", true
			if seen+unsure > 0 {
				place = "retrying"
			}
		case t.before.has("dead:"+g, msg):
			place = "dead"
		default:
			continue
		}
		dead = dead || t.before.has("dead:"+g, msg)
		list = append(list, g, place)
	}
	for _, g := range registered(t.before) {
		if !scheduled && !slices.Contains(list[3:], g) {
			list = append(list, g, "done")
		}
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
		return "cancelled: the dead message " + msg + " has lost its body"
	case !dead && t.after.keyLead() == msg:
		return "cancelled: the key still leads to " + msg
	}
	return t.others(msg)
}

// reachedSets returns the keys that a call of cancel or reschedule can reach. If a group is not
// registered and there is no other group, the data do not show that it has a message.
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
