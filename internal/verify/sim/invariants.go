package sim

import (
	"context"
	"fmt"
	"time"
)

// The guarantees, in numbers.
const (
	maxWait    = 300 * time.Millisecond // of a due message while a consumer is idle
	maxHold    = 200 * time.Millisecond // of a message by a consumer that cannot handle it
	maxBlind   = 150 * time.Millisecond // until a reader is found after its pause
	maxHeld    = 1500                   // messages, beyond those in flight
	maxBytes   = 16 << 20               // of messages, beyond the last claim of each partition
	lastClaim  = 5 << 20
	closeSlack = time.Second

	// quietWindow is the time over which commands are counted; quietCommands is the limit, in
	// addition to those of each partition.
	quietWindow   = 10 * time.Second
	quietCommands = 40
	// blockedCommands is the limit without a reader, which a consumer can find only by an offer.
	blockedCommands = 100

	// watchEvery is how often waiting messages are checked, in addition to checks when they are handed out.
	watchEvery = 50 * time.Millisecond
)

// watch checks all waiting messages periodically.
func (w *World) watch() {
	p := newProcess("watch", w.over)
	for n := 0; p.rest(context.Background(), watchEvery, nil) == nil; n++ {
		w.mu.Lock()
		for _, g := range w.groups {
			w.checkOpen(g)
			w.checkStampede(g)
		}
		if n%20 == 0 {
			w.checkStates()
		}
		for _, c := range w.consumers {
			w.checkQuiet(c)
			w.checkBounds(c)
		}
		w.mu.Unlock()
	}
}

func (w *World) checkStates() {
	for n := range w.topic.RaisePartitions(1) {
		if err := w.topic.Partition(n).Check(); err != nil {
			w.fail("state", "", "partition %d: %v", n, err)
		}
	}
}

// checkOpen checks the messages on their way to a group.
func (w *World) checkOpen(g *group) {
	now := time.Now()
	for _, t := range g.open {
		lost := t.place == leased && !now.Before(t.deadline)
		if t.place == waiting && now.Before(t.due) || t.handed && !lost {
			continue
		}
		if t.excused(now) {
			t.since = now
			continue
		}
		w.checkWait(t, now)
		w.checkHold(t, now)
	}
}

// excused reports whether a message may wait because its consumer is dead or stopped, does not know
// of it, or cannot release it.
func (t *track) excused(now time.Time) bool {
	c := t.holder
	if t.place != leased || c == nil || !now.Before(t.deadline) {
		return false
	}
	if t.slow || c.hasEnded() || c.stopped || now.Before(c.wentOn.Add(recovery)) && !c.wentOn.IsZero() {
		return true
	}
	// A late copy of a claim that has found the group retired may still claim: the consumer finds
	// out at its next claim.
	if restored := c.group.at(t.m.partition).untold; t.received.IsZero() && now.Before(restored.Add(c.w.plan.Poll*3/2)) {
		return true
	}
	return now.Before(c.links[t.m.partition].disturbedUntil)
}

// hasEnded reports whether a consumer was killed or has ended.
func (c *consumer) hasEnded() bool {
	select {
	case <-c.dead:
		return true
	case <-c.ended:
		return true
	default:
		return false
	}
}

// checkWait fails if a consumer was idle while a due message waited.
func (w *World) checkWait(t *track, now time.Time) {
	open, ok := t.claimable(now)
	if !ok {
		return
	}
	from, bound := latest(t.since, open), maxWait
	if t.place == leased && !now.Before(t.deadline) {
		from = latest(from, t.deadline)
	}
	if t.expired || t.place == leased && !now.Before(t.deadline) {
		bound += w.plan.Poll // the end of a lease causes no notification
	}
	if now.Sub(from) <= maxWait {
		return
	}
	for _, c := range t.group.consumers {
		idle, informed, able := c.idle(t.m.partition, now)
		if !able {
			continue
		}
		limit := bound
		if informed.IsZero() {
			limit = maxWait + w.plan.Poll
			informed = idle
		}
		if limit == maxWait {
			idle = latest(idle, informed)
		}
		idle = latest(idle, c.ahead(t))
		since := latest(from, idle)
		if limit > maxWait { // it must find the message with its next poll
			since = latest(since, t.ready)
		}
		if waited := now.Sub(since); waited > limit {
			w.fail("wait", t.m.id, "has waited for %v (%s) while %s was idle since %v (limit %v)",
				waited, t.state(), c.name, idle.Sub(w.start), limit)
			return
		}
	}
}

func (t *track) state() string {
	if t.place == leased {
		return fmt.Sprintf("leased to %s, handed out %t", t.holder.name, t.handed)
	}
	return "waiting"
}

// ahead returns when an idle consumer last claimed messages that precede a claimable one: it works
// through the queue as fast as its calls are.
func (c *consumer) ahead(t *track) time.Time {
	l := c.links[t.m.partition]
	if c.free == 0 || l == nil || t.place == leased && time.Now().Before(t.deadline) || l.found.Before(t.ready) {
		return time.Time{}
	}
	return l.found
}

// idle returns since when a consumer could have handled a message of a partition, and since when it
// has received all the notifications that it needs, zero if it has not.
func (c *consumer) idle(partition int, now time.Time) (since, informed time.Time, able bool) {
	if c.free == 0 || c.stopped || !c.stoppingAt.IsZero() || c.hasEnded() {
		return since, informed, false
	}
	l := c.links[partition]
	if l == nil || l.opened.IsZero() { // it does not know the partition yet
		first := c.links[0]
		if first == nil || first.opened.IsZero() || now.Before(first.disturbedUntil) {
			return since, informed, false
		}
		since = latest(c.idleSince, c.noticed, c.w.raised[partition], first.opened, first.disturbedUntil).Add(time.Second)
		since = latest(since, c.group.at(partition).eased.Add(c.w.plan.Poll)) // it polls while its group is retired
		return since, time.Time{}, !c.wentOn.After(now.Add(-recovery)) && (l == nil || !now.Before(l.disturbedUntil))
	}
	if now.Before(l.disturbedUntil) {
		return since, informed, false
	}
	// A consumer that hands out messages is not idle, even if more handlers could work.
	since = latest(c.idleSince, c.lastWork, c.noticed, l.opened, l.disturbedUntil)
	if untold := c.group.at(partition).untold; l.asked.Before(untold) {
		since = latest(since, untold.Add(c.w.plan.Poll))
	}
	if !l.refused.IsZero() {
		since = latest(since, l.refused.Add(c.w.plan.Poll*3/2))
	}
	if !c.wentOn.IsZero() {
		since = latest(since, c.wentOn.Add(recovery))
	}
	if l.informed {
		informed = latest(l.informedAt, l.opened)
	}
	return since, informed, true
}

// checkHold fails if a consumer has held a message that it cannot handle for too long.
func (w *World) checkHold(t *track, now time.Time) {
	c := t.holder
	if t.place != leased || t.handed || t.received.IsZero() || !now.Before(t.deadline) {
		return
	}
	from := latest(t.received, t.since.Add(-time.Hour), c.links[t.m.partition].disturbedUntil)
	switch {
	case !c.stoppingAt.IsZero():
		from = latest(from, c.stoppingAt)
	case c.free == 0:
		from = latest(from, c.busySince)
	case c.pauses[t.m.partition] != nil && t.claimed.Before(c.pauses[t.m.partition].at):
		from = latest(from, c.pauses[t.m.partition].at)
	default:
		return
	}
	if !c.wentOn.IsZero() {
		from = latest(from, c.wentOn.Add(recovery))
	}
	if held := now.Sub(from); held > maxHold+4*w.plan.Faults.Latency {
		w.fail("hold", t.m.id, "was held for %v by %s, which cannot handle it (leaving: %t)", held, c.name, !c.stoppingAt.IsZero())
	}
}
