package sim

import "time"

const (
	// claimsEach is how many claims there may be for each message that is handed out while limits
	// hold a group back, however many consumers wait. This includes consumers that claim before
	// they are notified that another one has claimed.
	claimsEach = 4

	// yields is within what time consumers that let another one claim first claim themselves.
	yields = 12 * time.Millisecond

	// claimsMore is how many further claims there may be, for messages that are released.
	claimsMore = 100
)

// usage is what a group has done since a time. It is guarded by World.mu.
type usage struct {
	since  time.Time
	claims int
	handed int // messages
	woken  int // notifications for all groups, each of which makes all consumers claim
	most   int // consumers
}

// checkStampede fails if consumers claim too often for the number of messages that limits let their
// group have.
func (w *World) checkStampede(g *group) {
	now, u := time.Now(), g.usage
	g.usage.most = max(u.most, len(g.consumers))
	if now.Sub(u.since) < quietWindow {
		return
	}
	g.usage = usage{since: now}
	links, calm := 0, true
	for _, c := range g.consumers {
		calm = calm && c.joined.Before(u.since)
		for _, l := range c.links {
			links++
			calm = calm && l.disturbedUntil.Before(u.since) && l.misled.Before(u.since)
		}
	}
	if !calm || !w.limitedSince(g, u.since) {
		return
	}
	unaware := u.most * int(2*w.plan.Faults.Latency/time.Microsecond) / int(yields/time.Microsecond)
	most := links*int(2*quietWindow/w.plan.Poll+2) + (claimsEach+unaware)*u.handed + u.most*u.woken + claimsMore
	if u.claims > most {
		w.fail("stampede", "", "the %d consumers of %s have claimed %d times in %v for %d messages, at most %d",
			u.most, g.name, u.claims, quietWindow, u.handed, most)
	}
}

// limitedSince reports whether a group has had the same limits in all partitions since a
// time.
func (w *World) limitedSince(g *group, since time.Time) bool {
	for n := range w.topic.RaisePartitions(1) {
		r := g.at(n)
		if r.max == 0 && r.interval == 0 || !r.changedAt.Before(since) {
			return false
		}
	}
	return !since.IsZero()
}
