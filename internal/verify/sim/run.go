package sim

import (
	"context"
	"fmt"
	"time"
)

// Run runs the plan and returns the first failure, if any.
func (w *World) Run() (Stats, *Failure) {
	end := newProcess("sim", w.over)
	pause := func(d time.Duration) { _ = end.rest(context.Background(), d, nil) } // either result is fine
	for _, g := range w.groups {
		for n, c := range g.plan.Consumers {
			w.actors.Go(func() { w.manage(fmt.Sprintf("%s%s", g.name, alphabetic(n)), g, c) })
		}
	}
	for i, p := range w.plan.Publishers {
		w.publish(newPublisher(w, i+1, p))
	}
	w.actors.Go(w.watch)
	w.actors.Go(w.faults)
	w.actors.Go(w.grow)
	w.operators.Go(newOperator(w).run)
	pause(w.plan.Duration)
	w.calm()
	w.writers.Wait()
	w.operators.Wait()
	w.settle(pause)
	w.closeAll(pause)
	return w.finish()
}

func (w *World) publish(p *publisher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.publishers = append(w.publishers, p)
	w.writers.Go(p.run)
}

// alphabetic numbers consumers: A to Z, then AA and so on.
func alphabetic(n int) string {
	if n < 26 {
		return string(rune('A' + n))
	}
	return alphabetic(n/26-1) + string(rune('A'+n%26))
}

// manage keeps one consumer running: it replaces a consumer that was killed or has ended.
func (w *World) manage(name string, g *group, plan ConsumerPlan) {
	p := newProcess(name, w.over)
	r := rng(w.seed, name)
	if p.rest(context.Background(), g.plan.Joins, w.quieted) != nil {
		return
	}
	for n := 1; !w.isOver(); n++ {
		c := w.join(fmt.Sprintf("%s%d", name, n), g, plan)
		select {
		case <-c.dead:
		case <-c.ended:
		case <-w.over:
			c.cancel()
		}
		w.forget(c)
		if p.rest(context.Background(), between(r, 0, 3*time.Second), w.quieted) != nil {
			return
		}
	}
}

// forget removes a consumer that has ended.
func (w *World) forget(c *consumer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.consumers = without(w.consumers, c)
	c.group.consumers = without(c.group.consumers, c)
}

func without(list []*consumer, c *consumer) []*consumer {
	var remaining []*consumer
	for _, other := range list {
		if other != c {
			remaining = append(remaining, other)
		}
	}
	return remaining
}

// grow adds the planned partitions one by one.
func (w *World) grow() {
	p, r := newProcess("grow", w.over), rng(w.seed, "grow")
	for n := range w.plan.Raise {
		if p.rest(context.Background(), between(r, 0, w.plan.Duration/time.Duration(w.plan.Raise)), w.quieted) != nil || w.isQuiet() {
			return
		}
		w.mu.Lock()
		w.raise(w.plan.Partitions + n + 1)
		w.mu.Unlock()
	}
}

// calm ends all faults and all publishing.
func (w *World) calm() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.quiet = true
	w.log("sim", "faults end", nil)
	clear(w.stalls)
	clear(w.storms)
	clear(w.refusals)
	clear(w.silentUntil)
	for _, c := range w.consumers {
		if c.stopped {
			c.stopped, c.wentOn = false, time.Now()
			c.goOn()
		}
	}
	close(w.quieted)
}

// settle waits until all messages are delivered.
func (w *World) settle(pause func(time.Duration)) {
	maxDelay := time.Duration(0)
	for _, p := range w.plan.Publishers {
		maxDelay = max(maxDelay, p.MaxDelay)
	}
	deadline := time.Now().Add(maxDelay + w.plan.Lease + 2*w.plan.Poll + 2*recovery)
	for !w.isOver() {
		remaining := w.undelivered()
		if remaining == nil {
			return
		}
		if time.Now().After(deadline) {
			w.mu.Lock()
			w.fail("lost", remaining.m.id, "not delivered to %s after the faults have ended", remaining.group.name)
			w.mu.Unlock()
			return
		}
		pause(250 * time.Millisecond)
	}
}

// undelivered returns a message that some group still has to handle.
func (w *World) undelivered() *track {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range w.groups {
		if len(g.open) > 0 {
			return g.open[0]
		}
	}
	return nil
}

// closeAll ends all consumers and checks that they do.
func (w *World) closeAll(pause func(time.Duration)) {
	w.mu.Lock()
	list := w.consumers
	w.mu.Unlock()
	for _, c := range list {
		c.stop()
	}
	pause(w.plan.CloseTimeout + closeSlack)
	for _, c := range list {
		w.checkClosed(c)
	}
}

// finish ends the simulation.
func (w *World) finish() (Stats, *Failure) {
	w.mu.Lock()
	for n := range w.topic.RaisePartitions(1) {
		if err := w.topic.Partition(n).Check(); err != nil {
			w.fail("state", "", "partition %d: %v", n, err)
		}
	}
	w.stats.Virtual = time.Since(w.start)
	w.stats.Messages = len(w.messages)
	w.end()
	w.mu.Unlock()
	w.actors.Wait()
	w.operators.Wait()
	return w.stats, w.failure
}
