package sim

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/sim/store"
)

// faults causes faults, one at a time with pauses, until they end.
func (w *World) faults() {
	f := w.plan.Faults
	if f.Every == 0 {
		return
	}
	p, r := newProcess("faults", w.over), rng(w.seed, "faults")
	kinds := []struct {
		weight float64
		bring  func(r *rand.Rand)
	}{
		{f.Storms, w.storm},
		{f.Stalls, w.stall},
		{f.Refusals, w.refuse},
		{f.Deafness, w.deafen},
		{f.Lies, w.lie},
		{f.Killed, w.killOne},
		{f.Stopped, w.stopOne},
		{f.Leaves, w.dismissOne},
	}
	total := 0.0
	for _, k := range kinds {
		total += k.weight
	}
	for {
		if p.rest(context.Background(), between(r, f.Every/10, 2*f.Every), w.quieted) != nil || w.isQuiet() {
			return
		}
		draw := r.Float64() * total
		for _, k := range kinds {
			if draw -= k.weight; draw < 0 {
				k.bring(r)
				break
			}
		}
	}
}

// anyone draws a process; someone draws a consumer.
func (w *World) anyone(r *rand.Rand) *process {
	w.mu.Lock()
	pubs := w.publishers
	w.mu.Unlock()
	if n := len(pubs); n > 0 && chance(r, 0.3) {
		return pubs[r.IntN(n)].process
	}
	if c := w.anyConsumer(r); c != nil {
		return c.process
	}
	return nil
}

func (w *World) anyConsumer(r *rand.Rand) *consumer {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.consumers) == 0 || w.quiet {
		return nil
	}
	return w.consumers[r.IntN(len(w.consumers))]
}

// inflict makes a process suffer a fault until a time.
func (w *World) inflict(r *rand.Rand, what string, until map[*process]time.Time, longest time.Duration) {
	p, d := w.anyone(r), between(r, 50*time.Millisecond, longest)
	if p == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.quiet {
		return
	}
	until[p] = time.Now().Add(d)
	w.log(p.name, what, []any{d})
}

func (w *World) storm(r *rand.Rand) {
	w.inflict(r, "is cut off now and then for %v", w.storms, 4*time.Second)
}

func (w *World) refuse(r *rand.Rand) { w.inflict(r, "is refused for %v", w.refusals, 3*time.Second) }

func (w *World) deafen(r *rand.Rand) {
	if chance(r, 0.5) {
		w.inflict(r, "gets no notifications for %v", w.silentUntil, 20*time.Second)
		return
	}
	c := w.anyConsumer(r)
	if c == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log(c.name, "loses its connection for notifications", nil)
	for _, l := range c.links {
		if l.listener != nil {
			l.listener.snap()
		}
		l.mislead(time.Now())
	}
}

// stall makes a partition hang.
func (w *World) stall(r *rand.Rand) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.quiet {
		return
	}
	n, d := r.IntN(w.topic.RaisePartitions(1)), between(r, 50*time.Millisecond, 8*time.Second)
	w.stalls[n] = time.Now().Add(d)
	w.log("sim", "partition %d hangs for %v", []any{n, d})
	for _, c := range w.consumers {
		if l := c.links[n]; l != nil {
			l.disturb(w.stalls[n])
		}
	}
}

// lie publishes false notifications for a while.
func (w *World) lie(r *rand.Rand) {
	w.mu.Lock()
	defer w.mu.Unlock()
	gap, until := between(r, time.Millisecond, 200*time.Millisecond), time.Now().Add(between(r, time.Second, 20*time.Second))
	g, partition := w.groups[r.IntN(len(w.groups))], r.IntN(w.topic.RaisePartitions(1))
	own := rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))
	w.log("liar", "lies every %v to %s at %d", []any{gap, g.name, partition})
	w.actors.Go(func() { w.liar(own, g, partition, gap, until) })
}

func (w *World) liar(r *rand.Rand, g *group, partition int, gap time.Duration, until time.Time) {
	p := newProcess("liar", w.over)
	for time.Now().Before(until) && !w.isQuiet() {
		waits := []int64{-1, 3_600_000_000, 10_000_000, 1_000_000, 0}
		n := store.Notice{
			Wait: waits[r.IntN(len(waits))], Group: g.name, Claimed: chance(r, 0.8),
			Found: r.IntN(3), Consumer: "of another database", Grown: chance(r, 0.02),
		}
		w.mu.Lock()
		for _, c := range w.consumers {
			if l := c.links[partition]; l != nil && (n.Grown || c.group == g) {
				l.send(n, true)
			}
		}
		w.mu.Unlock()
		if p.rest(context.Background(), gap, w.quieted) != nil {
			return
		}
	}
}

func (w *World) killOne(r *rand.Rand) {
	if c := w.anyConsumer(r); c != nil {
		c.die("is killed")
	}
}

func (w *World) stopOne(r *rand.Rand) {
	c, d := w.anyConsumer(r), between(r, 10*time.Millisecond, w.plan.Lease*3/2)
	if c == nil {
		return
	}
	w.mu.Lock()
	if c.stopped || w.quiet {
		w.mu.Unlock()
		return
	}
	c.stopped = true
	w.log(c.name, "is stopped for %v", []any{d})
	c.suspend()
	w.mu.Unlock()
	w.actors.Go(func() {
		p := newProcess("sim", w.over)
		_ = p.rest(context.Background(), d, w.quieted) // either result is fine
		w.mu.Lock()
		defer w.mu.Unlock()
		if c.stopped {
			w.log(c.name, "continues", nil)
			c.stopped, c.wentOn = false, time.Now()
			c.goOn()
		}
	})
}

func (w *World) dismissOne(r *rand.Rand) {
	c := w.anyConsumer(r)
	if c == nil {
		return
	}
	c.stop()
	w.actors.Go(func() {
		p := newProcess("sim", w.over)
		if p.rest(context.Background(), w.plan.CloseTimeout+closeSlack, nil) == nil {
			w.checkClosed(c)
		}
	})
}
