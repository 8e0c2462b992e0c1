package sim

import "time"

// checkBounds fails if a consumer holds too many messages or bytes.
func (w *World) checkBounds(c *consumer) {
	for _, l := range c.links {
		if time.Now().Before(l.disturbedUntil) {
			return
		}
	}
	if c.held > maxHeld+c.plan.MaxInFlight || c.heldBytes > maxBytes+len(c.links)*lastClaim {
		w.fail("bounds", "", "%s holds %d messages of %d bytes", c.name, c.held, c.heldBytes)
	}
}

// checkQuiet fails if a consumer that has nothing to do, or can do nothing, sends too many commands.
func (w *World) checkQuiet(c *consumer) {
	now := time.Now()
	if now.Sub(c.counted) < quietWindow {
		return
	}
	from, commands, woken := c.counted, c.commands, c.woken
	c.counted, c.commands, c.woken = now, 0, 0
	for _, l := range c.links {
		if l.disturbedUntil.After(from) || l.misled.After(from) {
			return
		}
	}
	n := time.Duration(len(c.links))
	limit := int(n * (2*quietWindow/w.plan.Poll + 3*quietWindow/w.plan.Lease + 2))
	idle := c.free > 0 && !c.idleSince.After(from) && w.active.Before(from)
	blocked := c.free == 0 && !c.busySince.After(from)
	if blocked { // it may check for a reader that often
		limit += blockedCommands + c.plan.MaxInFlight
	} else {
		limit += quietCommands
	}
	if c.group.operated(from) { // each new message is a reason to claim, but the claim may get none
		limit += woken
	}
	if (idle || blocked) && commands > limit && c.stoppingAt.IsZero() {
		w.fail("quiet", "", "%s sent %d commands in %v, at most %d (idle %t, blocked %t)", c.name, commands, quietWindow, limit, idle, blocked)
	}
}

// count counts a command.
func (w *World) count(l *link, kind string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.Commands++
	if l.consumer != nil {
		l.consumer.commands++
		if kind == "claim" {
			l.consumer.group.usage.claims++
		}
	}
}

// checkClosed fails if a consumer has not ended in time.
func (w *World) checkClosed(c *consumer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !c.hasEnded() && !c.stopped && c.wentOn.Before(c.stoppingAt) {
		w.fail("close", "", "%s has not ended %v after it was closed", c.name, time.Since(c.stoppingAt))
	}
}
