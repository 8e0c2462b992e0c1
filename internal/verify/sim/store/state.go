package store

import (
	"fmt"
	"slices"
	"strings"
)

// State returns all data of the partition, as "kind id" -> value, under the names that the scripts
// use in Redis, without the records of calls.
func (p *Partition) State() map[string]string {
	state := map[string]string{}
	put(state, "scheduled", p.scheduled.scores)
	put(state, "messages", p.messages)
	put(state, "keys", p.keys)
	put(state, "dedup", p.dedup)
	put(state, "settings tombstone", p.tombstones)
	for name, back := range p.rates {
		if back > 0 {
			state["settings rate "+name] = fmt.Sprint(back)
		}
	}
	for key, id := range p.lost {
		state["keys "+key] = "!" + id
	}
	for id, names := range p.refs {
		state["refs "+id] = strings.Join(slices.Sorted(slices.Values(names)), ",")
	}
	for name, until := range p.pauses {
		state["settings paused "+name] = fmt.Sprint(until)
	}
	for name, s := range p.shares {
		state["settings limits "+name] = fmt.Sprintf("%d %.6f %d %t", s.most, s.interval, s.burst, p.halts(name))
	}
	for name, e := range p.expiry {
		state["settings expiry "+name] = fmt.Sprintf("%d %d %d", e.lasts, e.ends, e.noticed)
		state["expiry "+name] = fmt.Sprint(e.look)
	}
	for name, g := range p.groups {
		g.put(state, name)
	}
	return state
}

func (g *group) put(state map[string]string, name string) {
	if g.registered {
		state["groups "+name] = "member"
	}
	if g.atLimit > 0 {
		state["at_limit "+name] = fmt.Sprint(g.atLimit)
	}
	put(state, "queue:"+name, g.queue.scores)
	put(state, "unack:"+name, g.unack.scores)
	put(state, "dead:"+name, g.dead.scores)
	put(state, "reasons:"+name, g.reasons)
	put(state, "nack_metadata:"+name, g.nackMetadata)
	for id, receipt := range g.attempts {
		state["attempts:"+name+" "+id] = receipt.entry()
	}
	put(state, "turns:"+name, g.turns)
	for orderKey, places := range g.blocked {
		for _, e := range places {
			state[fmt.Sprintf("blocked:%s %s%016d%s", name, orderKey, e.score, e.id)] = "0"
		}
	}
	for consumer, c := range g.consumers {
		state["consumers:"+name+" "+consumer] = fmt.Sprint(c.until, " ", c.seen)
	}
}

func put[V any](state map[string]string, kind string, values map[string]V) {
	for id, value := range values {
		if text, is := any(value).([]byte); is {
			state[kind+" "+id] = string(text)
		} else {
			state[kind+" "+id] = fmt.Sprint(value)
		}
	}
}
