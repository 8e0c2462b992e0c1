package explore

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// op is one event: a call of a script, an advance of time, or damage.
type op struct {
	kind, group, consumer, msg, receipt, arg string
	knows                                    string // the other groups that a claim names; "" for all
	number, limit, free                      int
	target                                   string // the message that a cancel or reschedule names; "" for the key's
}

// ops lists the operations that are possible in a state.
func (u *Universe) ops(s state) []op {
	var list []op
	add := func(o op) { list = append(list, o) }
	u.pushes(s, add)
	for _, g := range u.groups {
		if !s.has("groups", g) {
			add(op{kind: "register", group: g})
			continue // consumers register it first
		}
		u.claims(s, g, add)
	}
	for _, msg := range u.msgs() {
		if !s.has("~sent", msg) {
			continue
		}
		if isLater(s.value("scheduled", msg)) {
			add(op{kind: "due", arg: "scheduled", msg: msg})
		}
		for _, g := range u.groups {
			u.settlements(s, g, msg, add)
		}
	}
	if isLater(s.value("dedup", theKey)) {
		add(op{kind: "due", arg: "dedup", msg: theKey})
	}
	if u.keyed {
		u.keyCalls(s, "", add)
	}
	for _, msg := range u.msgs() {
		if len(u.verbs) > 0 && !u.keyed && s.has("~sent", msg) {
			u.keyCalls(s, msg, add)
		}
	}
	if u.damage {
		u.losses(s, add)
	}
	return list
}

// remembered returns the policy of a push if it matters when the push is repeated: otherwise, its
// record stops the repetition.
func (u *Universe) remembered(policy string) string {
	if u.damage || u.between > 0 {
		return policy
	}
	return u.policies[0]
}

// pushes send the next message, in a new batch or under the number of the first batch, and repeat all earlier pushes.
// If a batch is barred, a late copy may arrive, and its message is sent in another batch.
func (u *Universe) pushes(s state, add func(op)) {
	for n, msg := range u.msgs() {
		number := n + 1
		if u.asks {
			add(op{kind: "outcome", target: msg, number: number})
		}
		if s.has("~barred", msg) {
			for _, policy := range u.policies {
				add(op{kind: "push", msg: msg, arg: policy, number: number})
			}
			number += u.messages
		}
		if sent, ok := s.get("~sent", msg); ok {
			words := strings.Fields(sent)
			was, _ := strconv.Atoi(words[0])
			add(op{kind: "push", msg: msg, arg: words[2], number: was})
			continue
		}
		for _, policy := range u.policies {
			add(op{kind: "push", msg: msg, arg: policy, number: number})
			if n > 0 && !u.damage && !u.asks {
				add(op{kind: "push", msg: msg, arg: policy, number: 1})
			}
		}
		return
	}
}

// claims are new requests, a repetition of the last one, and a late copy of the one before that.
// The first request has the number 2, so that there may always have been an earlier one.
func (u *Universe) claims(s state, g string, add func(op)) {
	for i, c := range u.consumers {
		claim := op{kind: "claim", group: g, consumer: c, limit: u.messages, free: u.messages, number: firstRequest}
		if s.has("~requests:"+g, c) {
			claim.arg = "again"
			for claim.limit = 1; claim.limit <= u.messages; claim.limit++ { // a lower limit takes fewer
				add(claim)
			}
			claim.limit = u.messages
			claim.arg, claim.number = "late", firstRequest-1
			add(claim)
			claim.number = firstRequest + 1
		}
		claim.arg = "new"
		for claim.limit = range u.limits(i) {
			for claim.free = range claim.limit + 1 {
				for _, claim.knows = range u.lists(s, g) {
					add(claim)
				}
			}
		}
	}
}

// The groups that a claim names, if not all.
const (
	knowsNobody = "naming nobody"
	knowsFormer = "naming those of before" // messages fell due
	knowsThen   = "naming those of then"   // when they had fallen due
)

// lists returns the groups that a new claim may name. A list that is older than a group is harmless
// only if all due messages were due before that group was registered.
func (u *Universe) lists(s state, g string) []string {
	lists := []string{""}
	if len(u.groups) == 1 {
		return lists
	}
	lists = append(lists, knowsNobody)
	if !u.joins {
		return lists
	}
	lists = append(lists, knowsFormer)
	for _, other := range others(s, g) {
		for _, e := range s.all("scheduled") {
			if isDue(e.value) && !s.has("~came after:"+other, e.field) {
				return lists
			}
		}
	}
	return append(lists, knowsThen)
}

// limits returns how many messages a consumer may request: any number if it is the only consumer.
// Otherwise the first consumer requests one, the second two.
func (u *Universe) limits(consumer int) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for limit := 1; limit <= u.messages; limit++ {
			if len(u.consumers) == 1 || limit == min(consumer+1, u.messages) {
				yield(limit)
			}
		}
	}
}

func (u *Universe) settlements(s state, g, msg string, add func(op)) {
	if isLater(s.value("queue:"+g, msg)) {
		add(op{kind: "due", arg: "queue:" + g, msg: msg})
	}
	if deadline := s.value("unack:"+g, msg); isLater(deadline) {
		add(op{kind: "lapse", group: g, msg: msg, arg: deadline})
	}
	if u.decides && (s.has("queue:"+g, msg) || s.has("unack:"+g, msg) || s.has("dead:"+g, msg)) {
		add(op{kind: "bury any", group: g, msg: msg})
	}
	last, ok := s.get("~last:"+g, msg)
	if !ok {
		return
	}
	add(op{kind: "requeue", group: g, msg: msg})
	add(op{kind: "discard", group: g, msg: msg})
	receipts := strings.Fields(last)
	for i, receipt := range []string{receipts[0], receipts[2]} {
		if receipt == "-" {
			continue
		}
		add(op{kind: "ack", group: g, msg: msg, receipt: receipt})
		add(op{kind: "nack", group: g, msg: msg, receipt: receipt})
		if u.changes && i == 0 {
			add(op{kind: "nack", group: g, msg: msg, receipt: receipt, arg: changedBody})
		}
		if u.decides {
			add(op{kind: "defer", group: g, msg: msg, receipt: receipt})
			add(op{kind: "condemn", group: g, msg: msg, receipt: receipt})
		}
		add(op{kind: "release", group: g, msg: msg, receipt: receipt})
		add(op{kind: "bury", group: g, msg: msg, receipt: receipt})
		for _, handed := range []string{"0", "1"} {
			add(op{kind: "extend", group: g, msg: msg, receipt: receipt, arg: handed})
		}
	}
}

func (u *Universe) losses(s state, add func(op)) {
	for _, e := range s.all("groups") {
		add(op{kind: "deregister", group: e.field})
	}
	if len(s.all("publishers")) > 0 {
		add(op{kind: "forget", arg: "publishers"})
	}
	for _, g := range u.groups {
		if len(s.all("claims:"+g)) > 0 {
			add(op{kind: "forget", arg: "claims:" + g})
		}
	}
}

// keyCalls are the requests of one caller: new ones, some of which never arrive, a repetition of
// the last one, and late ones whose caller no longer waits.
func (u *Universe) keyCalls(s state, target string, every func(op)) {
	add := func(o op) {
		o.target = target
		if o.arg == "new" || o.arg == "lost" || s.value("~calls", "z") == target { // others are repeated
			every(o)
		}
	}
	number := firstRequest
	if s.has("~calls", "z") {
		number++
	}
	for _, verb := range u.verbs {
		add(op{kind: verb, arg: "new", number: number})
		if msg := s.keyLead(); len(u.groups) > 1 && u.between == 0 && msg != "" && !s.has("scheduled", msg) {
			add(op{kind: verb, arg: "new", number: number, knows: knowsNobody})
		}
		if u.between > 0 {
			add(op{kind: verb, arg: "lost", number: number})
		}
		if number == firstRequest {
			continue
		}
		record, ok := s.get("publishers", "z")
		for i, arg := range []string{"again", "overdue", "late"} {
			age := i / 2
			if !ok || recordNumber(record) != firstRequest-age || recordedVerb(record) == verb {
				add(op{kind: verb, arg: arg, number: firstRequest - age})
			}
		}
	}
}

// recordedVerb returns the kind of request of a record.
func recordedVerb(record string) string {
	if strings.Contains(record, " "+past) || strings.Contains(record, " "+future) {
		return "reschedule"
	}
	return "cancel"
}

// String describes an operation.
func (o op) String() string {
	switch o.kind {
	case "push":
		return fmt.Sprintf("publish %s as batch %d (%s)", o.msg, o.number, o.arg)
	case "outcome":
		return fmt.Sprintf("ask for the outcome of batch %d", o.number)
	case "claim":
		return strings.TrimSpace(fmt.Sprintf("%s/%s claims: %s, request %d, limit %d, free %d %s",
			o.group, o.consumer, o.arg, o.number, o.limit, o.free, o.knows))
	case "due":
		if o.arg == "dedup" {
			return "the window of the key ends"
		}
		return fmt.Sprintf("%s in %s becomes due", o.msg, o.arg)
	case "lapse":
		return fmt.Sprintf("the lease of %s in %s ends", o.msg, o.group)
	case "register", "deregister":
		return fmt.Sprintf("%s %s", o.kind, o.group)
	case "forget":
		return fmt.Sprintf("the records in %s are lost", o.arg)
	case "cancel", "reschedule":
		return strings.TrimSpace(fmt.Sprintf("%s %s: %s, request %d %s", o.kind, cmp.Or(o.target, "the holder of the key"), o.arg, o.number, o.knows))
	case "ack", "nack", "defer", "condemn", "release", "bury", "extend":
		return strings.TrimSpace(fmt.Sprintf("%s: %s %s with receipt %s %s", o.group, o.kind, o.msg, o.receipt, o.arg))
	case "restart":
		return "second restart"
	default:
		return fmt.Sprintf("%s: %s %s", o.group, o.kind, o.msg)
	}
}

// call returns the script call of an operation, as the Go methods make it; not ok if the operation
// calls no script.
func (u *Universe) call(s state, o op) (c call, ok bool) {
	g := o.group
	delay := strconv.Itoa(longDelay)
	switch o.kind {
	case "push":
		return call{
			"push",
			[]string{"scheduled", "messages", "publishers", "keys", "dedup"},
			[]string{"p", strconv.Itoa(o.number), o.arg, "wake", u.windowMs(), "1", o.msg, delay, bodyOf(o.msg)},
		}, true
	case "outcome":
		number := strconv.Itoa(o.number)
		return call{"outcome", []string{"scheduled", "publishers"}, []string{"p", number, number, o.target}}, true
	case "claim":
		return u.claimCall(s, o), true
	case "register":
		return call{"register", []string{"groups", "settings", "expiry"}, []string{g, strconv.Itoa(queue.MaxGroups), "0", ""}}, true
	case "ack":
		return call{"ack", under(g, "unack:", "attempts:", "messages", "refs", "nack_metadata:", "keys", "at_limit", "turns:", "blocked:", "queue:"), []string{g, "wake", o.msg, o.receipt}}, true
	case "nack", "defer", "condemn":
		details := map[string][]string{"nack": {"", delay}, "defer": {"defer", delay}, "condemn": {"bury", condemned}}[o.kind]
		return call{
			"nack",
			under(g, "unack:", "attempts:", "queue:", "nack_metadata:", "dead:", "reasons:", "keys", "at_limit", "turns:", "blocked:", "settings"),
			[]string{g, "wake", strconv.Itoa(u.most), o.msg, o.receipt, details[0], details[1], o.arg},
		}, true
	case "extend":
		return call{"extend", under(g, "unack:", "attempts:", "groups", "consumers:"), []string{leaseMs(u.leaseOf("")), g, "", "0", "", o.msg, o.receipt, o.arg}}, true
	case "release":
		return call{"release", under(g, "unack:", "attempts:", "queue:", "at_limit", "settings"), []string{g, "wake", o.msg, o.receipt, "1000", "0"}}, true
	case "bury":
		return call{
			"bury",
			under(g, "unack:", "attempts:", "dead:", "reasons:", "keys", "at_limit", "queue:", "turns:", "blocked:", "settings"),
			[]string{g, "wake", "0", o.msg, o.receipt, "bad"},
		}, true
	case "bury any": // by an operator, without a receipt
		return call{
			"bury",
			under(g, "unack:", "attempts:", "dead:", "reasons:", "keys", "at_limit", "queue:", "turns:", "blocked:", "settings"),
			[]string{g, "wake", never, o.msg, "", putAway},
		}, true
	case "requeue":
		return call{"requeue", under(g, "dead:", "reasons:", "attempts:", "queue:"), []string{g, "wake", never, o.msg}}, true
	case "discard":
		return call{
			"discard",
			under(g, "dead:", "reasons:", "attempts:", "messages", "refs", "nack_metadata:", "keys", "turns:", "blocked:", "queue:"),
			[]string{g, "wake", strconv.Itoa(queue.MaxFreedBytes), never, o.msg},
		}, true
	case "cancel", "reschedule":
		return u.keyCall(s, o), o.arg != "lost"
	}
	return call{}, false
}

// never is later than any time that is explored, in ms.
const never = "4000000000000"

// putAway is the reason of an operator's burials.
const putAway = "away"

// under appends a group's name to the keys that end with a colon.
func under(group string, keys ...string) []string {
	for i, key := range keys {
		if key[len(key)-1] == ':' {
			keys[i] = key + group
		}
	}
	return keys
}

// registered lists the registered groups, all of which callers know.
func registered(s state) []string {
	var names []string
	for _, e := range s.all("groups") {
		names = append(names, e.field)
	}
	return names
}

// others lists the registered groups except one.
func others(s state, g string) []string {
	return slices.DeleteFunc(registered(s), func(name string) bool { return name == g })
}

func (u *Universe) claimCall(s state, o op) call {
	g := o.group
	keys := under(g, "scheduled", "messages", "groups", "refs", "keys", "queue:", "unack:", "attempts:",
		"claims:", "dead:", "reasons:", "nack_metadata:", "settings", "consumers:", "at_limit", "partitions", "expiry", "turns:", "blocked:", "imported")
	args := []string{
		g, o.consumer, strconv.Itoa(o.number), strconv.Itoa(o.limit), strconv.Itoa(o.free), leaseMs(u.leaseOf(o.consumer)),
		strconv.Itoa(u.most), strconv.Itoa(queue.MaxReplyBytes), "wake", "0", "", "1",
	}
	named, asOf := others(s, g), &args[len(args)-1]
	switch o.knows {
	case knowsNobody:
		named, *asOf = nil, "0"
	case knowsFormer:
		named, *asOf = []string{"gone"}, "900" // earlier than all that is due
	case knowsThen:
		named, *asOf = []string{"gone"}, "2000"
	}
	for _, other := range named {
		keys = append(keys, "queue:"+other)
		args = append(args, other)
	}
	return call{"claim", keys, args}
}

// keyCall returns a call that names the registered groups, and those that only refs names.
func (u *Universe) keyCall(s state, o op) call {
	until := never
	if o.arg == "overdue" {
		until = "1000"
	}
	by, name := "key", theKey
	if o.target != "" {
		by, name = "id", o.target
	}
	c := call{
		o.kind,
		[]string{"scheduled", "messages", "publishers", "groups", "refs", "keys"},
		[]string{"z", strconv.Itoa(o.number), until, by, name},
	}
	if o.kind == "cancel" {
		c.keys, c.args = append(c.keys, "dedup", "at_limit"), append(c.args, "wake")
	}
	if o.kind == "reschedule" {
		c.args = append(c.args, "in", strconv.Itoa(longDelay), "wake")
	}
	for _, g := range reached(s, o) {
		c.keys = append(c.keys, "queue:"+g, "unack:"+g, "dead:"+g, "attempts:"+g)
		if o.kind == "cancel" {
			c.keys = append(c.keys, "nack_metadata:"+g)
		}
		c.keys = append(c.keys, "turns:"+g, "blocked:"+g)
		c.args = append(c.args, g)
	}
	return c
}

// reached lists the groups whose keys are in a call of cancel or reschedule.
func reached(s state, o op) []string {
	if o.knows == knowsNobody {
		return nil
	}
	names := registered(s)
	if refs, ok := s.get("refs", s.meant(o)); ok {
		for _, name := range refNames(refs) {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// meant returns the message of a call of cancel or reschedule: the one in its record if the call is
// repeated, else the one that the key leads to.
func (s state) meant(o op) string {
	if record, ok := s.get("publishers", "z"); ok && recordNumber(record) == o.number {
		if told := recordedAnswer(record); len(told) > 1 {
			return told[1]
		}
		return ""
	}
	if o.target != "" {
		return map[bool]string{true: o.target}[s.has("messages", o.target)]
	}
	return s.keyLead()
}
