package whole

import (
	"context"
	"time"
)

// faults brings one fault after another: go-redis holds a mutex while it opens a connection again,
// so a connection that is cut while Redis hangs would stop virtual time.
func (w *world) faults() {
	f := w.plan.Faults
	if f.Every == 0 {
		return
	}
	r := w.rng("faults")
	actions := []action{
		{f.Notifications, w.cutNotifications},
		{f.Lines, func() { w.cutConnections(r.IntN) }},
		{f.Lossy, func() { w.loseSome(r.IntN, between(r, 100*time.Millisecond, 3*time.Second)) }},
		{f.Hang, func() { w.hang(between(r, 100*time.Millisecond, 8*time.Second)) }},
		{f.Kill, func() { w.kill(r.IntN) }},
		{f.FlushAll, func() { w.flush("FLUSHALL") }},
		{f.FlushScripts, func() { w.flush("SCRIPT", "FLUSH") }},
	}
	for w.rest(between(r, f.Every/2, f.Every*3/2)) {
		choose(r, actions)
		w.ledger.mu.Lock()
		w.stats.Faults++
		w.ledger.mu.Unlock()
	}
}

// cutNotifications cuts the connections for notifications of all, once. Nothing may be late for
// that: the next attempt can succeed, and who hears nothing can look.
func (w *world) cutNotifications() {
	for _, l := range w.network.all() {
		if l.carriesNotifications() {
			l.close()
		}
	}
}

// afflicted is a process under a fault, and what it concerns.
func (w *world) afflicted(draw func(int) int) *consumer {
	c := w.steady(draw)
	if c == nil {
		c = &consumer{process: w.clients[0]}
	}
	return c
}

func (w *world) cutConnections(draw func(int) int) {
	c := w.afflicted(draw)
	w.trouble(c.group, w.plan.Faults.Recovery)
	w.trouble(c.process.name, w.plan.Faults.Recovery)
	c.process.cut(func(*connection) bool { return true })
}

// loseSome makes a process lose some of its requests and replies for a time: a consumer, or
// everybody but those.
func (w *world) loseSome(draw func(int) int, lasts time.Duration) {
	// A message that such a consumer holds comes to another after its lease.
	recovery := lasts + w.plan.Faults.Recovery + leaseDuration + pollInterval
	w.trouble("", recovery)
	w.mu.Lock()
	var afflicted []*process
	for range 3 {
		afflicted = append(afflicted, w.clients[draw(len(w.clients))])
	}
	w.mu.Unlock()
	for _, p := range afflicted {
		p.setLossy(0.2)
	}
	w.rest(lasts)
	for _, p := range afflicted {
		p.setLossy(0)
	}
}

func (w *world) hang(lasts time.Duration) {
	w.trouble("", lasts+w.plan.Faults.Recovery)
	w.network.hang(time.Now().Add(lasts))
	wait(lasts)
}

func (w *world) kill(draw func(int) int) {
	c := w.steady(draw)
	if c == nil {
		return
	}
	w.trouble(c.group, leaseDuration+pollInterval+w.plan.Faults.Recovery)
	w.leave(c)
	c.process.die()
	close(c.died)
}

func (w *world) flush(command ...any) {
	if command[0] == "FLUSHALL" {
		w.trouble("", w.plan.Faults.Recovery+2*pollInterval)
		w.lose("", 2*pollInterval+w.plan.Faults.Recovery)
	}
	if err := w.inspector().Do(context.Background(), command...).Err(); err != nil {
		w.fail("call", "%v: %v", command, err)
	}
}
