package queue

import (
	"fmt"
	"slices"
	"strings"
)

// A crash may tear the file in the middle of a script. Redis 7.0 ignores that script at the
// next restart, so the client sees an error and the state is as before. But the script's
// first commands stay in the file, and the second restart applies them, before all later
// writes. So from the torn call on, the file differs from memory, until a second restart
// makes it the state. A pair is both.

// tear starts a pair for each call and each number of its commands that may be left.
func (x *explorer) tear(number int32, moves []move) {
	s := decode(x.nodes[number].state)
	for _, m := range moves {
		effects := decodeEffects(m.effects)
		if len(effects) < 2 { // a single command is there or not
			continue
		}
		memory, ok := x.unanswered(number, m.op, moves)
		if !ok {
			continue
		}
		disk := s.redis().clone()
		for k, e := range effects {
			disk.apply(e)
			event := fmt.Sprintf("torn after %d of %d writes (%s): %s", k+1, len(effects), strings.Join(e, " "), m.op)
			file := disk.clone()
			if msg, whom := m.op.ends(s); msg != "" {
				file.set("~torn", msg, whom)
			}
			file.shift(lost(m.op))
			x.pair(memory, file, node{parent: number, event: x.intern(event), torn: "after torn " + m.op.kind, steps: 1})
		}
	}
}

// pair adds a state in memory with a different one on disk, and the restart that makes the
// latter the state.
func (x *explorer) pair(memory int32, disk explored, n node) {
	m := decode(x.nodes[memory].state)
	if slices.Equal(disk.redis(), m.redis()) {
		return
	}
	x.u.canonical(disk)
	n.state, n.memory = disk.encode(), memory
	number := x.add(n)
	if number < 0 || number != int32(len(x.nodes)-1) {
		return // out of bounds, or known
	}
	x.restart(number, m.ghost(), disk)
}

// expandPair follows the operations in memory, whose writes also go to the file.
func (x *explorer) expandPair(number int32) {
	n := x.nodes[number]
	if int(n.steps) > x.u.between {
		return
	}
	for _, m := range x.moves[n.memory] {
		if m.next < 0 {
			continue
		}
		x.pairSteps++
		disk := decode(n.state)
		for _, e := range decodeEffects(m.effects) {
			disk.apply(e)
		}
		disk.shift(m.op)
		x.pair(m.next, disk, node{parent: number, event: x.intern(m.op.String()), torn: n.torn, steps: n.steps + 1})
	}
}

func (x *explorer) restart(pair int32, ghost, disk explored) {
	const event = "second restart"
	s := disk.clone()
	for _, e := range ghost {
		s.set(e.key, e.field, e.value)
	}
	s.set("~torn", "restarted", "")
	if bad := x.u.invariants(s, func(class string) { x.tolerated[class]++ }); bad != "" {
		t := &step{op: op{kind: "restart"}, before: decode(x.nodes[x.nodes[pair].memory].state), after: s}
		x.report(bad, pair, t)
		return
	}
	x.add(node{state: s.encode(), memory: -1, parent: pair, event: event, torn: x.nodes[pair].torn, steps: 1})
}

// lost is a call of cancel or reschedule that has not arrived.
func lost(o op) op {
	o.arg = map[bool]string{true: "lost"}[o.arg == "new" && o.kind != "claim"]
	return o
}

// unanswered is the state in memory after a torn call. Callers of cancel and reschedule
// then make their next request; all others repeat theirs until it is answered.
func (x *explorer) unanswered(number int32, o op, moves []move) (memory int32, ok bool) {
	if o.kind != "cancel" && o.kind != "reschedule" {
		return number, true
	}
	for _, m := range moves {
		if m.op.kind == o.kind && m.op.number == o.number && m.op.arg == "lost" {
			return m.next, o.arg == "new" && m.next >= 0
		}
	}
	return number, true // it was lost before
}

// ends tells for whom a call ends a message. A torn call may have done so.
func (o op) ends(s explored) (msg, whom string) {
	switch o.kind {
	case "ack", "discard":
		return o.msg, o.group
	case "cancel":
		return s.meant(o), "*"
	case "push":
		if holder := s.keyHolder(); o.arg == string(ReplaceDuplicates) && holder != "" {
			return holder, "*"
		}
	}
	return "", ""
}
