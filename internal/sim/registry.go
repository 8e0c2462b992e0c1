package sim

import (
	"math/rand/v2"
	"time"
)

// newLink returns a connection of a process to a partition. The caller holds mu.
func (w *World) newLink(p *process, partition int) *link {
	l := &link{w: w, process: p, partition: partition, luck: map[string]*rand.Rand{}}
	if until := w.stalls[partition]; time.Now().Before(until) {
		l.suffer(until)
	}
	return l
}

// register makes a group known in all partitions and returns how many there are. The
// caller holds mu.
func (w *World) register(g *group) int {
	w.registerLocked(g)
	return w.topic.Raise(1)
}

func (w *World) registerLocked(g *group) {
	for n := range w.topic.Raise(1) {
		p := w.topic.Partition(n)
		p.Register(g.name)
		if g.registered {
			continue
		}
		for _, id := range p.Scheduled() {
			g.follow(w.messages[id], w.messages[id].due, time.Now())
		}
	}
	g.registered = true
}

// takenBack records that a message was replaced or cancelled.
func (w *World) takenBack(id string) {
	m := w.messages[id]
	m.gone = true
	for _, t := range m.tracks {
		t.end()
	}
}
