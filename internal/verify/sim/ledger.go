package sim

import (
	"sync"

	"github.com/redisdelay/watermill-redisdelay/observe"
)

// ledger checks what a subscription reports: each claimed delivery is settled once, and none is
// early.
type ledger struct {
	w    *World
	name string // of the consumer

	mu   sync.Mutex
	open map[string]int // guarded by mu; deliveries that are not settled, by id
}

func (l *ledger) observer() observe.Observer {
	return observe.Observer{Claimed: l.claimed, Delivered: l.handedOut, Settled: l.settled}
}

func (l *ledger) claimed(e observe.Claimed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range e.IDs {
		l.open[id]++
	}
}

func (l *ledger) handedOut(e observe.Delivered) {
	if e.Lateness < 0 {
		l.w.failNow("observer", "%s reports %s %v early", l.name, alias(e.ID), -e.Lateness)
	}
}

func (l *ledger) settled(e observe.Settled) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.open[e.ID] {
	case 0:
		l.w.failNow("observer", "%s reports %s settled more often than claimed", l.name, alias(e.ID))
	case 1:
		delete(l.open, e.ID)
	default:
		l.open[e.ID]--
	}
}

// close checks that all deliveries are settled after a subscription has ended without an error.
func (l *ledger) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.open {
		l.w.failNow("observer", "%s has ended and has not reported %s as settled", l.name, alias(id))
	}
}
