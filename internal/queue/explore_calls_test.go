package queue

import (
	"slices"
	"strconv"
)

// call is the script call of an operation, as the Go methods make it; not ok if the
// operation calls no script.
func (u *universe) call(s explored, o op) (c call, ok bool) {
	g := o.group
	delay := strconv.Itoa(exploreDelay)
	switch o.kind {
	case "push":
		return call{
			"push",
			[]string{"scheduled", "messages", "publishers", "keys", "taken"},
			[]string{"p", strconv.Itoa(o.number), o.arg, "wake", u.windowMs(), "1", o.msg, delay, exploreBody(o.msg)},
		}, true
	case "claim":
		return u.claimCall(s, o), true
	case "register":
		return call{"register", []string{"groups", "control", "expiry"}, []string{g, strconv.Itoa(MaxGroups), "0", ""}}, true
	case "ack":
		return call{"ack", under(g, "unack:", "attempts:", "messages", "refs", "changed:", "keys", "full"), []string{g, "wake", o.msg}}, true
	case "nack", "defer", "condemn":
		details := map[string][]string{"nack": {"", delay}, "defer": {"defer", delay}, "condemn": {"bury", condemned}}[o.kind]
		return call{
			"nack",
			under(g, "unack:", "attempts:", "queue:", "changed:", "dead:", "reasons:", "keys", "full"),
			[]string{g, "wake", strconv.Itoa(u.most), o.msg, o.token, details[0], details[1], o.arg},
		}, true
	case "extend":
		return call{"extend", under(g, "unack:", "attempts:", "groups", "consumers:"), []string{leaseMs(u.leaseOf("")), g, "", "0", "", o.msg, o.token, o.arg}}, true
	case "release":
		return call{"release", under(g, "unack:", "attempts:", "queue:", "full", "control"), []string{g, "wake", o.msg, o.token, "1000", "0"}}, true
	case "bury":
		return call{
			"bury",
			under(g, "unack:", "attempts:", "dead:", "reasons:", "keys", "full", "queue:"),
			[]string{g, "wake", "0", o.msg, o.token, "bad"},
		}, true
	case "put away": // by a person, who has no token
		return call{
			"bury",
			under(g, "unack:", "attempts:", "dead:", "reasons:", "keys", "full", "queue:"),
			[]string{g, "wake", never, o.msg, "", putAway},
		}, true
	case "requeue":
		return call{"requeue", under(g, "dead:", "reasons:", "attempts:", "queue:"), []string{g, "wake", never, o.msg}}, true
	case "discard":
		return call{
			"discard",
			under(g, "dead:", "reasons:", "attempts:", "messages", "refs", "changed:", "keys"),
			[]string{g, strconv.Itoa(MaxFreedBytes), never, o.msg},
		}, true
	case "cancel", "reschedule":
		return u.keyCall(s, o), o.arg != "lost"
	}
	return call{}, false
}

// never is later than all that is explored, in ms.
const never = "4000000000000"

// putAway is why a person buries messages.
const putAway = "away"

// windowMs is the deduplication window of the pushes.
func (u *universe) windowMs() string {
	if u.window {
		return strconv.Itoa(exploreDelay)
	}
	return "0"
}

// under appends a group's name to the keys that end with a colon.
func under(group string, keys ...string) []string {
	for i, key := range keys {
		if key[len(key)-1] == ':' {
			keys[i] = key + group
		}
	}
	return keys
}

// registered lists the registered groups, all of which a caller knows.
func registered(s explored) []string {
	var names []string
	for _, e := range s.all("groups") {
		names = append(names, e.field)
	}
	return names
}

func (u *universe) claimCall(s explored, o op) call {
	g := o.group
	keys := under(g, "scheduled", "messages", "groups", "refs", "keys", "queue:", "unack:", "attempts:",
		"claims:", "dead:", "reasons:", "changed:", "control", "consumers:", "full", "partitions", "expiry")
	args := []string{
		g, o.consumer, strconv.Itoa(o.number), strconv.Itoa(o.limit), strconv.Itoa(o.free), leaseMs(u.leaseOf(o.consumer)),
		strconv.Itoa(u.most), strconv.Itoa(MaxReplyBytes), "wake", "0", "", "1",
	}
	others, asOf := without(registered(s), g), &args[len(args)-1]
	switch o.knows {
	case knowsNobody:
		others, *asOf = nil, "0"
	case knowsFormer:
		others, *asOf = []string{"gone"}, "900" // earlier than all that is due
	case knowsThen:
		others, *asOf = []string{"gone"}, "2000"
	}
	for _, other := range others {
		keys = append(keys, "queue:"+other)
		args = append(args, other)
	}
	return call{"claim", keys, args}
}

// keyCall knows the registered groups, and those that only refs names.
func (u *universe) keyCall(s explored, o op) call {
	until := never
	if o.arg == "overdue" {
		until = "1000"
	}
	c := call{
		o.kind,
		[]string{"scheduled", "messages", "publishers", "groups", "refs", "keys"},
		[]string{"z", strconv.Itoa(o.number), until, "key", exploreKey},
	}
	if o.kind == "cancel" {
		c.keys, c.args = append(c.keys, "taken", "full"), append(c.args, "wake")
	}
	if o.kind == "reschedule" {
		c.args = append(c.args, "in", strconv.Itoa(exploreDelay), "wake")
	}
	for _, g := range reached(s, o) {
		c.keys = append(c.keys, "queue:"+g, "unack:"+g, "dead:"+g, "attempts:"+g)
		if o.kind == "cancel" {
			c.keys = append(c.keys, "changed:"+g)
		}
		c.args = append(c.args, g)
	}
	return c
}

// reached lists the groups whose keys are in a call of cancel or reschedule.
func reached(s explored, o op) []string {
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

// meant is the message that a call of cancel or reschedule is about: the one in its record
// if the call was made before, else the one that the key leads to.
func (s explored) meant(o op) string {
	if record, ok := s.get("publishers", "z"); ok && recordNumber(record) == o.number {
		if told := recordedAnswer(record); len(told) > 1 {
			return told[1]
		}
		return ""
	}
	return s.keyLead()
}
