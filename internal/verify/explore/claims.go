package explore

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// claimTruth checks new, repeated and late claims.
func (t *step) claimTruth() string {
	o := t.op
	if t.claim.groups {
		return t.askTruth()
	}
	record, ok := t.before.get("claims:"+o.group, o.consumer)
	switch {
	case ok && recordNumber(record) > o.number:
		if len(t.claim.given) > 0 {
			return "late claim: gets messages"
		}
		return t.nothing()
	case ok && recordNumber(record) == o.number:
		return t.replayTruth(record)
	}
	for _, check := range []func() string{t.freshTruth, t.healed, t.buriedTruth, t.waitTruth, t.recordTruth} {
		if bad := check(); bad != "" {
			return bad
		}
	}
	for _, g := range t.claim.given {
		if bad := t.givenTruth(g); bad != "" {
			return bad
		}
	}
	return ""
}

// lacksGroups reports whether a claim does not name the groups that a message is for.
func (t *step) lacksGroups() bool {
	return (t.op.knows == knowsNobody || t.op.knows == knowsFormer) && len(registered(t.before)) > 1
}

// askTruth checks that a claim that is asked for the groups needs them. It does not name all groups, and a message is for all of
// them. If it names some, it has no message of its own group, or has leased one that is still for all groups.
func (t *step) askTruth() string {
	g := t.op.group
	mine := append(t.dueUnder("queue:"+g), t.dueUnder("unack:"+g)...)
	both := slices.ContainsFunc(t.before.all("unack:"+g), func(e entry) bool { return t.before.has("scheduled", e.field) })
	switch {
	case !t.lacksGroups() || len(t.dueUnder("scheduled")) == 0 && !both:
		return "groups: asked for without need"
	case t.op.knows == knowsFormer && len(mine) > 0 && !slices.ContainsFunc(mine, t.before.relaxed):
		return fmt.Sprintf("groups: asked for, though %v wait for this group alone", mine)
	}
	return t.nothing()
}

// freshTruth checks a new claim as a whole: it takes the right messages, and changes no message
// that is not due.
func (t *step) freshTruth() string {
	o := t.op
	due := t.dueIn(t.before, o.group)
	var taken []string
	for _, g := range t.claim.given {
		taken = append(taken, g.msg)
	}
	taken = append(taken, t.newlyDead()...)
	for _, msg := range taken {
		if !slices.Contains(due, msg) {
			return "early: " + msg + " was not due"
		}
	}
	slices.Sort(taken)
	if want := t.wanted(); !slices.Equal(want, taken) && !slices.ContainsFunc(due, t.before.relaxed) {
		return fmt.Sprintf("idle claim: took %v of %v, want %v", taken, due, want)
	}
	for _, change := range diff(t.before, t.after) {
		if !strings.HasPrefix(change.key, "claims:") && !t.passes(change) && change.key != "at_limit" && !slices.Contains(due, change.field) && change.key != "keys" {
			return fmt.Sprintf("frame: claim changed %s of %s, which is not due", change.key, change.field)
		}
	}
	return ""
}

// wanted lists the messages that a claim has to take: first those with expired leases, then waiting
// ones, in order. Messages that were claimed before need a free worker.
func (t *step) wanted() []string {
	o, chosen := t.op, 0
	list := []string{}
	waiting := t.dueUnder("queue:" + o.group)
	if t.op.knows != knowsFormer || len(registered(t.before)) == 1 {
		waiting = append(waiting, t.dueUnder("scheduled")...)
	}
	slices.Sort(waiting)
	lost, owners := t.dueUnder("unack:"+o.group), map[string]string{}
	limit, reach := t.limits(len(lost))
	for i, msg := range append(lost, waiting...) {
		entry, before := t.before.get("attempts:"+o.group, msg)
		before = before && t.before.claimReceipt(o.group, msg, false) != heldAgain || i < len(lost)
		buried := exhausted(entry, t.u.most) != "" || !t.before.has("messages", msg)
		orderKey := t.u.orderKeyOf(msg)
		if owner := cmp.Or(owners[orderKey], t.before.value("turns:"+o.group, orderKey)); i < reach && !buried && orderKey != "" && owner != "" && owner != msg {
			continue // it waits in line
		}
		if i == reach || !buried && chosen == limit || !buried && before && chosen >= o.free {
			break
		}
		if !buried {
			chosen++
			owners[orderKey] = msg
		}
		list = append(list, msg)
	}
	slices.Sort(list)
	return list
}

// limits returns how many messages a claim takes and checks. If the group has little capacity, the
// claim is only for free workers. Messages with expired leases need no capacity.
func (t *step) limits(lost int) (limit, reach int) {
	limit = t.op.limit
	if t.u.limit > 0 {
		room := max(0, t.u.limit-len(t.before.all("unack:"+t.op.group)))
		if room < 4*limit {
			limit = min(limit, t.op.free)
		}
		limit = min(limit, min(lost, limit)+room)
	}
	if reach = t.reach(); reach < 100 || limit == 0 {
		reach = limit
	}
	return limit, reach
}

// reach returns how many messages a claim checks if its group has no limits.
func (t *step) reach() int {
	for _, key := range []string{"scheduled", "queue:" + t.op.group} {
		if first := t.dueUnder(key); len(first) > 0 && t.op.limit > 0 {
			owner := t.before.value("turns:"+t.op.group, t.u.orderKeyOf(first[0]))
			if owner != "" && owner != first[0] {
				return 500
			}
		}
	}
	for _, key := range []string{"unack:" + t.op.group, "queue:" + t.op.group} {
		if first := t.dueUnder(key); len(first) > 0 && t.op.limit > 0 && exhausted(t.before.value("attempts:"+t.op.group, first[0]), t.u.most) != "" {
			return max(t.op.limit, 100)
		}
	}
	return t.op.limit
}

func (t *step) dueUnder(key string) (list []string) {
	entries := slices.Clone(t.before.all(key))
	slices.SortStableFunc(entries, func(a, b entry) int { return strings.Compare(a.value, b.value) })
	for _, e := range entries {
		if isDue(e.value) {
			list = append(list, e.field)
		}
	}
	return list
}

// dueIn lists the messages that a claim of a group may take.
func (t *step) dueIn(s state, group string) (list []string) {
	for _, msg := range t.u.msgs() {
		for _, key := range []string{"scheduled", "queue:" + group, "unack:" + group} {
			if isDue(s.value(key, msg)) && !slices.Contains(list, msg) {
				list = append(list, msg)
			}
		}
	}
	return list
}

func (t *step) newlyDead() (list []string) {
	for _, e := range t.after.all("dead:" + t.op.group) {
		if !t.before.has("dead:"+t.op.group, e.field) {
			list = append(list, e.field)
		}
	}
	return list
}

// buriedTruth checks the dead messages that a claim has made, and that it reported them.
func (t *step) buriedTruth() string {
	g := t.op.group
	for _, msg := range t.newlyDead() {
		reason := t.after.value("reasons:"+g, msg)
		want := exhausted(t.before.value("attempts:"+g, msg), t.u.most)
		if want == "" && !t.before.has("messages", msg) {
			want = "message body is missing"
		}
		switch i := slices.Index(t.claim.buried, msg); {
		case want == "":
			return "buried: " + msg + " with deliveries left"
		case reason != want:
			return fmt.Sprintf("reason: %q of %s, want %q", reason, msg, want)
		case i < 0 || t.claim.buried[i+1] != reason:
			return fmt.Sprintf("buried: %s, but the answer has %v", msg, t.claim.buried)
		case t.keyLost(msg) != "":
			return t.keyLost(msg)
		}
	}
	return ""
}

// waitTruth checks when the consumer has to claim again.
func (t *step) waitTruth() string {
	due := len(t.dueIn(t.after, t.op.group)) > 0
	waits := func(e entry) bool { return !strings.HasPrefix(e.value, inLine) } // otherwise, another message has the turn
	left := len(t.after.all("scheduled"))+len(t.after.all("unack:"+t.op.group)) > 0 || slices.ContainsFunc(t.after.all("queue:"+t.op.group), waits)
	wait := t.claim.wait
	held := t.after.all("unack:" + t.op.group)
	lapsed := slices.ContainsFunc(held, func(e entry) bool { return isDue(e.value) })
	if due && t.u.limit > 0 && len(held) >= t.u.limit && !lapsed {
		if full := t.after.has("at_limit", t.op.group); wait <= 0 || !full {
			return fmt.Sprintf("wait: %d without room, marked %t", wait, full)
		}
		return ""
	}
	if due && wait == -2 && t.u.limit > 0 && len(t.claim.given) >= t.op.free {
		return ""
	}
	switch {
	case wait == 0 && t.heals(): // the group claims again at once
	case due && wait != 0 && wait != -2, due && wait == -2 && t.op.free >= t.op.limit:
		return fmt.Sprintf("wait: %d, though more is due", wait)
	case !due && left && wait <= 0, !due && !left && wait != -1:
		return fmt.Sprintf("wait: %d, with nothing due; messages left: %v", wait, left)
	}
	return ""
}

// givenTruth checks one message that a new claim has leased.
func (t *step) givenTruth(g given) string {
	o := t.op
	entry := t.before.value("attempts:"+o.group, g.msg)
	want := t.before.claimReceipt(o.group, g.msg, isDue(t.before.value("unack:"+o.group, g.msg)))
	last := strings.Fields(t.before.value("~last:"+o.group, g.msg))
	back := t.before.settled(o.group, g.msg)
	// A message that a torn script let wait in line reappears with the second restart, although it has become a dead
	// message meanwhile. Its attempts are gone, so it is delivered anew.
	letter := t.before.relaxed(g.msg) && t.before.has("dead:"+o.group, g.msg)
	known := !back && !letter && len(last) > 0 && last[1] != "-" && !t.before.has("~again", g.msg)
	switch {
	case back && !t.before.relaxed(g.msg):
		return "reappears: " + g.msg + " was settled, but is delivered again"
	case exhausted(entry, t.u.most) != "":
		return "not buried: " + g.msg + " has no deliveries left"
	case g.receipt != want && !t.before.relaxed(g.msg):
		return fmt.Sprintf("receipt: %s of %s, want %s", g.receipt, g.msg, want)
	case known && last[1] != o.consumer && token(last[0]) == token(g.receipt):
		return fmt.Sprintf("one receipt at two consumers: %s of %s, at %s and at %s", g.receipt, g.msg, last[1], o.consumer)
	case known && token(g.receipt) <= token(last[0]):
		return fmt.Sprintf("token repeats: %s of %s after %s", g.receipt, g.msg, last[0])
	case g.body != bodyOf(g.msg):
		return fmt.Sprintf("body wrong: %s has %q", g.msg, g.body)
	case !t.before.relaxed(g.msg) && g.view != t.before.value("~view:"+o.group, g.msg):
		return fmt.Sprintf("view wrong: %s sees %q of %s, want %q", o.group, g.view, g.msg, t.before.value("~view:"+o.group, g.msg))
	case t.after.value("unack:"+o.group, g.msg) != t.u.leaseOf(o.consumer):
		return "no lease: " + g.msg
	case t.after.value("attempts:"+o.group, g.msg) != g.receipt && (g.receipt != "1" || t.after.has("attempts:"+o.group, g.msg)):
		return fmt.Sprintf("claim: taking %s leaves %q in attempts", g.msg, t.after.value("attempts:"+o.group, g.msg))
	}
	return ""
}

// recordTruth compares the record with the answer.
func (t *step) recordTruth() string {
	record, ok := t.after.get("claims:"+t.op.group, t.op.consumer)
	if !ok || recordNumber(record) != t.op.number {
		return "record: there is none"
	}
	was := recordedClaim(record)
	same := slices.EqualFunc(was.given, t.claim.given, func(a, b given) bool { return a.msg == b.msg && a.receipt == b.receipt })
	if !same || !slices.Equal(was.buried, t.claim.buried) {
		return fmt.Sprintf("record: has %v, but the answer has %v", was, t.claim)
	}
	return ""
}
