package queue

import (
	"strconv"
)

// claimFrees is how many values of "free" a claim is made with, extendForms what a
// heartbeat says about a message.
const claimFrees = 1

var extendForms = []string{""}

// call is the script call of an operation, as the Go methods make it; ok is false when
// it is none.
func (u *universe) call(s explored, o op) (c call, ok bool) {
	g := o.group
	lease := strconv.Itoa(exploreDelay)
	switch o.kind {
	case "push":
		return call{
			"push", []string{"scheduled", "messages", "publishers", "keys"},
			[]string{"p", strconv.Itoa(o.number), o.arg, "wake", "1", o.msg, lease, exploreBody(o.msg)},
		}, true
	case "claim":
		return u.claimCall(s, o), true
	case "ack":
		return call{"ack", under(g, "unack:", "attempts:", "messages", "refs", "changed:", "keys"), []string{o.msg}}, true
	case "nack":
		return call{
			"nack", under(g, "unack:", "attempts:", "queue:", "messages", "refs", "changed:", "dead:", "reasons:", "keys"),
			[]string{g, "wake", strconv.Itoa(u.most), o.msg, o.token, lease, o.arg},
		}, true
	case "extend":
		return call{"extend", under(g, "unack:", "attempts:"), []string{lease, o.msg, o.token}}, true
	case "release":
		return call{"release", under(g, "unack:", "attempts:", "queue:"), []string{g, "wake", o.msg, o.token, "1000"}}, true
	case "bury":
		return call{
			"bury", under(g, "unack:", "attempts:", "dead:", "reasons:", "keys"),
			[]string{o.msg, o.token, "bad"},
		}, true
	case "requeue":
		return call{"requeue", under(g, "dead:", "reasons:", "attempts:", "queue:"), []string{g, "wake", o.msg}}, true
	case "discard":
		return call{
			"discard", under(g, "dead:", "reasons:", "attempts:", "messages", "refs", "changed:", "keys"),
			[]string{o.msg},
		}, true
	case "cancel", "reschedule":
		return u.keyCall(s, o), true
	}
	return call{}, false
}

// under puts a group's name behind the keys that end with a colon.
func under(group string, keys ...string) []string {
	for i, key := range keys {
		if key[len(key)-1] == ':' {
			keys[i] = key + group
		}
	}
	return keys
}

// known lists the groups that a caller knows: those that there are.
func known(s explored) []string {
	var names []string
	for _, e := range s.all("groups") {
		names = append(names, e.field)
	}
	return names
}

func (u *universe) claimCall(s explored, o op) call {
	g := o.group
	keys := under(g, "scheduled", "messages", "groups", "refs", "keys", "queue:", "unack:", "attempts:",
		"claims:", "dead:", "reasons:", "changed:")
	args := []string{
		g, o.consumer, strconv.Itoa(o.number), strconv.Itoa(o.limit), strconv.Itoa(exploreDelay),
		strconv.Itoa(u.most), strconv.Itoa(maxReplyBytes), "wake",
	}
	others := without(known(s), g)
	if o.arg == "unaware" {
		others = without(append(known(s), "nobody"), g)
	}
	for _, other := range others {
		keys = append(keys, "queue:"+other)
		args = append(args, other)
	}
	return call{"claim", keys, args}
}

func (u *universe) keyCall(s explored, o op) call {
	c := call{script: o.kind}
	if o.kind == "cancel" {
		c.keys = []string{"scheduled", "messages", "groups", "refs", "keys"}
		c.args = []string{exploreKey, o.msg}
	} else {
		c.keys = []string{"scheduled", "groups", "keys"}
		c.args = []string{exploreKey, o.msg, strconv.Itoa(exploreDelay), "wake"}
	}
	for _, g := range known(s) {
		if o.kind == "cancel" {
			c.keys = append(c.keys, "queue:"+g, "unack:"+g, "attempts:"+g, "changed:"+g)
		} else {
			c.keys = append(c.keys, "queue:"+g)
		}
		c.args = append(c.args, g)
	}
	return c
}
