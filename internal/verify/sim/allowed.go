package sim

import (
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/sim/store"
)

// checkAllowed fails if a claim, other than a repeated one, has got messages that its group must not have.
func (w *World) checkAllowed(g *group, partition int, request store.Request, claims store.Claims) {
	r, now := g.at(partition), time.Now()
	n := len(claims.Messages)
	if n+len(claims.Buried) > 0 {
		if lasts, _ := r.paused(now); lasts {
			w.fail("paused", "", "%s claims %d messages at %d, although it is paused", g.name, n, partition)
		}
		if r.retired {
			w.fail("retired", "", "%s claims %d messages at %d, although it is retired", g.name, n, partition)
		}
	}
	if n > request.Free && r.scarce(now, request.Limit) {
		w.fail("ahead", "", "%s claims %d messages at %d for %d free workers, although its limits leave little",
			g.name, n, partition, request.Free)
	}
	if !r.claim(now, n) {
		w.fail("rate", "", "%s claims %d messages at %d, %.3f more than its rate allows", g.name, n, partition, -r.tokens)
	}
}

// claimedLate records that a late copy of a claim has got messages, which its consumer does not
// know. If the claims of a retired group are forgotten, a late copy is not recognized.
func (w *World) claimedLate(c *consumer, l *link, claims store.Claims) {
	if forgotten := c.group.at(l.partition).forgotten; forgotten.Before(c.joined) {
		w.fail("claims", claims.Messages[0].ID, "goes to a late copy of a claim of %s", c.name)
	}
	for _, m := range claims.Messages {
		if t := w.messages[m.ID].tracks[c.group.name]; t.holds(c, m.Receipt) {
			t.slow = true
		}
	}
}

// operated reports whether the group has a setting that keeps it from claiming, or had one since a
// time.
func (g *group) operated(since time.Time) bool {
	for _, r := range g.rules {
		if lasts, ended := r.paused(time.Now()); lasts || r.retired || r.max > 0 || r.interval > 0 ||
			ended.After(since) || r.eased.After(since) {
			return true
		}
	}
	return false
}

// excuse sets since when a message that is being claimed has waited: since it could be claimed. It
// is called before the claim is counted.
func (w *World) excuse(g *group, id string) {
	m := w.messages[id]
	if m == nil || m.tracks[g.name] == nil {
		return
	}
	t := m.tracks[g.name]
	now := time.Now()
	open, ok := t.claimable(now)
	if !ok { // the claim itself has released capacity
		open = now
	}
	t.since = latest(t.since, open)
}

// claimable returns since when the group could have claimed a message, if it can now. A message
// that a consumer holds needs no more capacity. During a pause, no consumer may have it.
func (t *track) claimable(now time.Time) (since time.Time, ok bool) {
	lost := t.place == leased && !now.Before(t.deadline)
	if t.place == leased && !lost {
		lasts, _ := t.rules().paused(now)
		return since, !lasts && !t.rules().retired
	}
	free, ok := t.turnFree()
	if !ok {
		return since, false
	}
	since, ok = t.rules().open(now, lost)
	return latest(since, free), ok
}

// pauseSeen is the state of a consumer since it was notified of a pause.
type pauseSeen struct {
	at     time.Time
	handed int // messages claimed before and handed out since
}

// seePause records that a consumer is notified of a pause.
func (c *consumer) seePause(partition int) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.w.log(c.name, "hears of a pause at %d", []any{partition})
	c.pauses[partition] = &pauseSeen{at: time.Now()}
}

// checkPause fails if a consumer hands out messages that it held ahead when it was notified of a
// pause. Messages that were already offered may still be accepted.
func (c *consumer) checkPause(t *track, now time.Time) {
	heard := c.pauses[t.m.partition]
	if heard == nil || !t.claimed.Before(heard.at) || !now.After(heard.at) {
		return
	}
	if heard.handed++; heard.handed > c.plan.MaxInFlight {
		c.w.fail("paused", t.m.id, "is handed out by %s, which has heard of a pause %v ago; it is the %dth",
			c.name, now.Sub(heard.at), heard.handed)
	}
}
