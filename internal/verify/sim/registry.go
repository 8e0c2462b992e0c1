package sim

import (
	"math/rand/v2"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/sim/store"
)

// newLink returns a connection of a process to a partition. The caller holds mu.
func (w *World) newLink(p *process, partition int) *link {
	l := &link{w: w, process: p, partition: partition, rng: map[string]*rand.Rand{}}
	if until := w.stalls[partition]; time.Now().Before(until) {
		l.disturb(until)
	}
	return l
}

// joined is the result of a consumer that joins its group.
type joined struct {
	partitions int
	retired    bool
}

// register registers a group in the partitions that its consumer has not registered it in, as
// queue.Membership does. The caller holds mu.
func (w *World) register(c *consumer) joined {
	number := w.topic.RaisePartitions(1)
	if c.known > 0 && c.known < number && !w.registerAt(c.group, 0) {
		return joined{retired: true}
	}
	for ; c.known < number; c.known++ {
		if !w.registerAt(c.group, c.known) {
			return joined{retired: true}
		}
	}
	return joined{partitions: number}
}

// registerAt registers a group in a partition; false if it is retired.
func (w *World) registerAt(g *group, partition int) bool {
	p := w.topic.Partition(partition)
	if p.Registered(g.name) {
		return true
	}
	if !p.Register(g.name) {
		return false
	}
	w.log("sim", "%s is registered at %d", []any{g.name, partition})
	w.followScheduled(g, partition)
	return true
}

// followScheduled tracks the scheduled messages that a newly registered group will get.
func (w *World) followScheduled(g *group, partition int) {
	for _, id := range w.topic.Partition(partition).Scheduled() {
		if m := w.messages[id]; m.tracks[g.name] == nil {
			g.follow(m, m.due, time.Now())
		}
	}
}

// raise makes sure that there are at least this many partitions, and returns their number. The
// caller holds mu.
func (w *World) raise(least int) int {
	known := w.topic.RaisePartitions(1)
	for n := known; n < least; n++ {
		w.raised[n] = time.Now()
		w.log("sim", "partition %d is added", []any{n})
	}
	number := w.topic.RaisePartitions(least)
	for _, g := range w.groups {
		for n := range number {
			if number > known {
				g.at(n).adopt(time.Now(), g.at(0), n, number)
				if w.topic.Partition(n).Registered(g.name) { // the new partition has adopted it
					w.followScheduled(g, n)
				}
			}
			if n >= known { // a retired group is retired there, too
				r := g.at(n)
				r.change(time.Now(), func() { r.retired, r.follows = g.at(0).retired, g.at(0).retired })
			}
		}
	}
	return number
}

// withdrawn records that a message was replaced or cancelled.
func (w *World) withdrawn(id string) {
	m := w.messages[id]
	m.gone = true
	for _, t := range m.tracks {
		t.end()
	}
}

// The calls of an operator at a partition. World.mu is held.

func (w *World) pause(partition int, now int64, name string, lasts time.Duration) {
	w.topic.Partition(partition).Pause(now, name, lasts.Milliseconds())
	w.log("operator", "pauses %q at %d for %v", []any{name, partition, lasts})
	var until time.Time
	if lasts > 0 {
		until = dueAfter(now, lasts.Milliseconds())
	}
	w.changeRules(partition, name, func(r *rules) { r.pauses[name] = until })
}

func (w *World) resume(partition int, now int64, name string) {
	w.topic.Partition(partition).Resume(now, name)
	w.log("operator", "resumes %q at %d", []any{name, partition})
	w.changeRules(partition, name, func(r *rules) { delete(r.pauses, name) })
}

func (w *World) limit(partition int, now int64, name string, l store.Limits, partitions int) {
	w.topic.Partition(partition).Limit(now, name, l, partitions)
	w.log("operator", "limits %q at %d of %d: %+v", []any{name, partition, partitions, l})
	w.changeRules(partition, name, func(r *rules) {
		r.limit(time.Now(), l, partition, partitions)
		r.cap(time.Now())
	})
}

// changeRules changes the rules of a group, or of all groups if the name is "".
func (w *World) changeRules(partition int, name string, change func(*rules)) {
	for _, g := range w.groups {
		if r := g.at(partition); name == "" || name == g.name {
			r.change(time.Now(), func() { change(r) })
		}
	}
}

func (w *World) retire(partition int, g *group) {
	p := w.topic.Partition(partition)
	p.Retire(g.name)
	w.log("operator", "retires %q at %d", []any{g.name, partition})
	w.changeRules(partition, g.name, func(r *rules) { r.retired, r.follows = true, false })
	for _, id := range p.Scheduled() { // the group will not get these
		if t := w.messages[id].tracks[g.name]; t != nil {
			t.end()
			delete(w.messages[id].tracks, g.name)
		}
	}
}

// free frees some messages of a retired group; false if none is left.
func (w *World) free(partition int, g *group) (more bool) {
	freed, done, retired := w.topic.Partition(partition).Forget(g.name, forgetMessages)
	for _, id := range freed {
		w.messages[id].tracks[g.name].end()
	}
	if len(freed) > 0 {
		w.log("operator", "frees of %q at %d:", []any{g.name, partition}, freed...)
	}
	if done {
		w.changeRules(partition, g.name, func(r *rules) {
			r.forgotten = time.Now()
			delete(r.pauses, g.name)
			r.limit(time.Now(), store.Limits{}, partition, 1)
		})
	}
	return retired && !done
}

// restore ends a retirement; false if the group still holds messages.
func (w *World) restore(partition int, g *group) bool {
	if !w.topic.Partition(partition).Restore(g.name) {
		return false
	}
	w.log("operator", "restores %q at %d", []any{g.name, partition})
	for n := range w.topic.RaisePartitions(1) {
		if r := g.at(n); r.retired && (n == partition || partition == 0 && r.follows) {
			r.change(time.Now(), func() { r.retired, r.follows, r.untold = false, false, time.Now() })
		}
	}
	return true
}
