package queue

import (
	"fmt"
	"strconv"
	"strings"
)

// op is one event: a call of a script, the passing of time, or damage.
type op struct {
	kind, group, consumer, msg, token, arg string
	knows                                  string // which other groups a claim names; "" for all
	number, limit, free                    int
}

// universe limits what is explored.
type universe struct {
	name       string
	groups     []string
	consumers  []string
	messages   int
	keyed      bool
	window     bool     // keys stay taken until their windows end
	deliveries int      // the highest fence
	most       int      // max deliveries of the groups
	limit      int      // messages that each group may hold at once, 0 for any number
	policies   []string // on duplicates
	verbs      []string // cancel, reschedule
	changes    bool     // nacks may leave changed metadata
	decides    bool     // handlers may defer and bury
	joins      bool     // a claim may name groups as they were when the messages fell due
	damage     bool     // registrations and records may be lost
	between    int      // torn files: operations until the second restart at most, 0 for no tearing
	after      int      // operations after it at most
	states     int      // gives up after so many
}

func (u *universe) msgs() []string {
	list := make([]string, u.messages)
	for i := range list {
		list[i] = fmt.Sprintf("#%d", i+1)
	}
	return list
}

// ops lists the operations that are possible in a state.
func (u *universe) ops(s explored) []op {
	var list []op
	add := func(o op) { list = append(list, o) }
	u.pushes(s, add)
	for _, g := range u.groups {
		if !s.has("groups", g) {
			add(op{kind: "register", group: g})
			continue // its consumers register it first
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
	if isLater(s.value("taken", exploreKey)) {
		add(op{kind: "due", arg: "taken", msg: exploreKey})
	}
	if u.keyed {
		u.keyCalls(s, add)
	}
	if u.damage {
		u.losses(s, add)
	}
	return list
}

// remembered is the policy of a push if it matters when the push is sent again: otherwise
// its record stops that.
func (u *universe) remembered(policy string) string {
	if u.damage || u.between > 0 {
		return policy
	}
	return u.policies[0]
}

// pushes send the next message, in a new batch or under the number of the first batch, and
// repeat all that were sent.
func (u *universe) pushes(s explored, add func(op)) {
	for n, msg := range u.msgs() {
		if sent, ok := s.get("~sent", msg); ok {
			words := strings.Fields(sent)
			was, _ := strconv.Atoi(words[0])
			add(op{kind: "push", msg: msg, arg: words[2], number: was})
			continue
		}
		for _, policy := range u.policies {
			add(op{kind: "push", msg: msg, arg: policy, number: n + 1})
			if n > 0 && !u.damage {
				add(op{kind: "push", msg: msg, arg: policy, number: 1})
			}
		}
		return
	}
}

// claims are new requests, the last one again, and a late copy of the one before that. The
// first request has the number 2, so there may always have been an earlier one.
func (u *universe) claims(s explored, g string, add func(op)) {
	for i, c := range u.consumers {
		claim := op{kind: "claim", group: g, consumer: c, limit: u.messages, free: u.messages, number: firstRequest}
		if s.has("~requests:"+g, c) {
			claim.arg = "again"
			add(claim)
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

// lists are the groups that a new claim may name. That a list is older than a group is only
// harmless if all that has fallen due did so before that group came.
func (u *universe) lists(s explored, g string) []string {
	lists := []string{""}
	if len(u.groups) == 1 {
		return lists
	}
	lists = append(lists, knowsNobody)
	if !u.joins {
		return lists
	}
	lists = append(lists, knowsFormer)
	for _, other := range without(registered(s), g) {
		for _, e := range s.all("scheduled") {
			if isDue(e.value) && !s.has("~came after:"+other, e.field) {
				return lists
			}
		}
	}
	return append(lists, knowsThen)
}

// limits are how many messages a consumer may ask for: any number if it is the only one.
// Otherwise the first asks for one, the second for two.
func (u *universe) limits(consumer int) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for limit := 1; limit <= u.messages; limit++ {
			if len(u.consumers) == 1 || limit == min(consumer+1, u.messages) {
				yield(limit)
			}
		}
	}
}

func (u *universe) settlements(s explored, g, msg string, add func(op)) {
	if isLater(s.value("queue:"+g, msg)) {
		add(op{kind: "due", arg: "queue:" + g, msg: msg})
	}
	if deadline := s.value("unack:"+g, msg); isLater(deadline) {
		add(op{kind: "lapse", group: g, msg: msg, arg: deadline})
	}
	if u.decides && (s.has("queue:"+g, msg) || s.has("unack:"+g, msg) || s.has("dead:"+g, msg)) {
		add(op{kind: "put away", group: g, msg: msg})
	}
	last, ok := s.get("~last:"+g, msg)
	if !ok {
		return
	}
	add(op{kind: "ack", group: g, msg: msg})
	add(op{kind: "requeue", group: g, msg: msg})
	add(op{kind: "discard", group: g, msg: msg})
	tokens := strings.Fields(last)
	for i, token := range []string{tokens[0], tokens[2]} {
		if token == "-" {
			continue
		}
		add(op{kind: "nack", group: g, msg: msg, token: token})
		if u.changes && i == 0 {
			add(op{kind: "nack", group: g, msg: msg, token: token, arg: changedBody})
		}
		if u.decides {
			add(op{kind: "defer", group: g, msg: msg, token: token})
			add(op{kind: "condemn", group: g, msg: msg, token: token})
		}
		add(op{kind: "release", group: g, msg: msg, token: token})
		add(op{kind: "bury", group: g, msg: msg, token: token})
		for _, handed := range []string{"0", "1"} {
			add(op{kind: "extend", group: g, msg: msg, token: token, arg: handed})
		}
	}
}

func (u *universe) losses(s explored, add func(op)) {
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

// keyCalls are the requests of one caller: new ones, some of which never arrive, the last
// one again, and late ones that nobody waits for.
func (u *universe) keyCalls(s explored, add func(op)) {
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

// recordedVerb is the kind of request that a record belongs to.
func recordedVerb(record string) string {
	if strings.Contains(record, " "+past) || strings.Contains(record, " "+future) {
		return "reschedule"
	}
	return "cancel"
}

// String describes an operation for people.
func (o op) String() string {
	switch o.kind {
	case "push":
		return fmt.Sprintf("publish %s as batch %d (%s)", o.msg, o.number, o.arg)
	case "claim":
		return strings.TrimSpace(fmt.Sprintf("%s/%s claims: %s, request %d, limit %d, free %d %s",
			o.group, o.consumer, o.arg, o.number, o.limit, o.free, o.knows))
	case "due":
		if o.arg == "taken" {
			return "the window of the key ends"
		}
		return fmt.Sprintf("%s in %s falls due", o.msg, o.arg)
	case "lapse":
		return fmt.Sprintf("the lease of %s in %s ends", o.msg, o.group)
	case "register", "deregister":
		return fmt.Sprintf("%s %s", o.kind, o.group)
	case "forget":
		return fmt.Sprintf("the records in %s are lost", o.arg)
	case "cancel", "reschedule":
		return strings.TrimSpace(fmt.Sprintf("%s the holder of the key: %s, request %d %s", o.kind, o.arg, o.number, o.knows))
	case "nack", "defer", "condemn", "release", "bury", "extend":
		return strings.TrimSpace(fmt.Sprintf("%s: %s %s with token %s %s", o.group, o.kind, o.msg, o.token, o.arg))
	case "restart":
		return "second restart"
	default:
		return fmt.Sprintf("%s: %s %s", o.group, o.kind, o.msg)
	}
}
