package queue

import (
	"fmt"
	"slices"
	"strings"
)

// freshTruth is about a new claim as a whole: it takes all that is due, up to its limit, and
// touches nothing else.
func (t *step) freshTruth() string {
	o := t.op
	due := t.dueFor(o.group)
	var taken []string
	for _, g := range t.claim.given {
		taken = append(taken, g.msg)
	}
	taken = append(taken, t.newlyDead(o.group)...)
	for _, msg := range taken {
		if !slices.Contains(due, msg) {
			return "early: " + msg + " was not due"
		}
	}
	taken = unique(taken, "")
	if want := t.takes(due); len(taken) != want && !t.oddly(due) {
		return fmt.Sprintf("idle claim: took %v of %v, want %d", taken, due, want)
	}
	for _, change := range diff(t.before, t.after) {
		if !strings.HasPrefix(change.key, "claims:") && !slices.Contains(due, change.field) && change.key != "keys" {
			return fmt.Sprintf("frame: claim changed %s of %s, which is not due", change.key, change.field)
		}
	}
	return t.freshDead()
}

// oddly tells whether a torn file has put a message that is due into two places, which
// counts twice.
func (t *step) oddly(due []string) bool {
	return slices.ContainsFunc(due, t.before.relaxed)
}

// dueFor lists what a claim of a group may take.
func (t *step) dueFor(group string) (list []string) {
	for _, msg := range t.u.msgs() {
		for _, key := range []string{"scheduled", "queue:" + group, "unack:" + group} {
			if t.before.value(key, msg) == past && !slices.Contains(list, msg) {
				list = append(list, msg)
			}
		}
	}
	return list
}

func (t *step) newlyDead(group string) (list []string) {
	for _, e := range t.after.all("dead:" + group) {
		if !t.before.has("dead:"+group, e.field) {
			list = append(list, e.field)
		}
	}
	return list
}

// freshDead is about what a claim made a dead letter.
func (t *step) freshDead() string {
	for _, msg := range t.newlyDead(t.op.group) {
		reason := t.after.value("reasons:"+t.op.group, msg)
		switch {
		case !t.before.has("messages", msg):
			if reason != "message body is missing" {
				return "reason: of a message without a body is " + reason
			}
			t.count("a dead letter without a body")
		case !t.before.exhausted(t.op.group, msg, t.u.most):
			return "buried: " + msg + " with deliveries left"
		case t.after.value("keys", exploreKey) == msg:
			return "buried: " + msg + " keeps its key"
		}
	}
	return ""
}

// givenTruth is about one message that a new claim gave.
func (t *step) givenTruth(g given) string {
	o := t.op
	want := t.before.claimToken(o.group, g.msg)
	last := strings.Fields(t.before.value("~last:"+o.group, g.msg))
	back := t.before.settled(o.group, g.msg)
	switch {
	case back && !t.before.relaxed(g.msg):
		return "comes back: " + g.msg + " was settled, and is delivered"
	case t.before.exhausted(o.group, g.msg, t.u.most):
		return "not buried: " + g.msg + " has no deliveries left"
	case g.token != want && !t.before.relaxed(g.msg):
		return fmt.Sprintf("token: %s of %s, want %s", g.token, g.msg, want)
	case !back && len(last) > 0 && last[1] != "-" && last[1] != o.consumer && last[0] == g.token:
		return fmt.Sprintf("one token at two consumers: %s of %s, at %s and at %s", g.token, g.msg, last[1], o.consumer)
	case !back && len(last) > 0 && last[1] != "-" && fence(g.token) <= fence(last[0]):
		return fmt.Sprintf("fence repeats: %s of %s after %s", g.token, g.msg, last[0])
	case g.body != exploreBody(g.msg):
		return fmt.Sprintf("body wrong: of %s is %q", g.msg, g.body)
	case !t.before.relaxed(g.msg) && g.view != t.before.value("~view:"+o.group, g.msg):
		return fmt.Sprintf("view wrong: %s sees %q of %s, want %q", o.group, g.view, g.msg, t.before.value("~view:"+o.group, g.msg))
	case t.after.value("unack:"+o.group, g.msg) != future:
		return "no lease: of " + g.msg
	case t.after.value("attempts:"+o.group, g.msg) != t.before.entryAfterClaim(o.group, g.msg, g.token):
		return fmt.Sprintf("claim: of %s leaves %q in attempts", g.msg, t.after.value("attempts:"+o.group, g.msg))
	}
	if back {
		t.count("a settled message is delivered again")
	}
	return ""
}

// recordTruth compares the record with the answer.
func (t *step) recordTruth() string {
	record, ok := t.after.get("claims:"+t.op.group, t.op.consumer)
	if !ok {
		return "record: there is none"
	}
	list := recorded(record)
	same := slices.EqualFunc(list, t.claim.given, func(a, b given) bool { return a.msg == b.msg && a.token == b.token })
	if !same {
		return fmt.Sprintf("record: has %v, the answer %v", list, t.claim.given)
	}
	return ""
}
