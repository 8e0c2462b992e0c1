package explore

import "fmt"

// againDue is the class of when a message with a time to live is due again: later than its first due time, from which
// that counts. Consumers take the age of a message from the token of its delivery, so the explorer checks what tokens say;
// whether a consumer then hands the message out is a comparison of two times.
const againDue = past + "1"

// firstDue is what a claim has to say of when a message was due: what the group has known since the first claim, or
// else the score that it finds. Only a message with a time to live has it.
func (t *step) firstDue(msg string) string {
	if !t.u.isMortal(msg) {
		return ""
	}
	if known, ok := t.before.get("~due:"+t.op.group, msg); ok {
		return known
	}
	for _, key := range []string{"queue:" + t.op.group, "scheduled"} {
		if due, ok := t.before.get(key, msg); ok {
			return scoreOfDue(due)
		}
	}
	return scoreOfDue(past)
}

// scoreOfDue is the end of a token for the class of a due time that is over.
func scoreOfDue(class string) string {
	if class == againDue {
		return "/1001"
	}
	return "/1000"
}

// tellsAge checks what a claim says of when a message was due.
func (t *step) tellsAge(g given) string {
	if want := t.firstDue(g.msg); dueOf(g.token) != want {
		return fmt.Sprintf("age: the token %s of %s does not end with %q, so it would be handed out though its time to live is over",
			g.token, g.msg, want)
	}
	return ""
}

// learnDue brings up to date when messages with a time to live were due: from a claim until an operator, or a
// reschedule, gives them a new due time.
func (t *step) learnDue() {
	g := t.op.group
	for _, given := range t.claim.given {
		if due := t.firstDue(given.msg); due != "" {
			t.after.set("~due:"+g, given.msg, due)
		}
	}
	for _, msg := range t.u.msgs() {
		for _, g := range t.u.groups {
			anew := t.op.kind == "requeue" && g == t.op.group && t.op.msg == msg && !t.listed(msg) ||
				t.op.kind == "reschedule" && t.answer() == "rescheduled" && t.before.meant(t.op) == msg && t.after.has("queue:"+g, msg)
			if anew || !t.after.has("messages", msg) {
				t.after.remove("~due:"+g, msg)
			}
		}
	}
}

// livesAnew checks that a message that was rescheduled has its time to live from its new due time on.
func (t *step) livesAnew(msg string) string {
	for _, g := range t.u.groups {
		if t.u.isMortal(msg) && t.after.has("queue:"+g, msg) && dueOf(t.after.value("attempts:"+g, msg)) != "" {
			return fmt.Sprintf("age: %s is due anew, but %q in attempts is from before", msg, t.after.value("attempts:"+g, msg))
		}
	}
	return ""
}
