package sim

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/sim/store"
)

// handedOut records that a handler has a message.
func (w *World) handedOut(handler context.Context, c *consumer, d store.Delivery) *item {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return nil
	}
	now, m := time.Now(), w.messages[d.ID]
	t := m.tracks[c.group.name]
	w.log(c.name, "hands out", nil, d.ID)
	c.worked++
	c.lastWork = now
	w.stats.Deliveries++
	c.group.usage.handed++
	w.stats.Handled[c.name]++
	t.seen++
	if w.Measure && t.seen == 1 {
		w.stats.Late = append(w.stats.Late, now.Sub(m.due))
	}
	w.checkHandOut(c, t, d, now)
	if !t.holds(c, d.Receipt) {
		return m
	}
	if !t.excused(now) {
		w.checkWait(t, now)
	}
	w.checkOrder(t)
	c.checkPause(t, now)
	if !t.received.IsZero() {
		c.held--
		c.heldBytes -= m.size
	}
	t.handed, t.handler = true, handler
	return m
}

func (w *World) checkHandOut(c *consumer, t *track, d store.Delivery, now time.Time) {
	id := t.m.id
	switch {
	case now.Before(t.notBefore):
		w.fail("early", id, "is handed out %v early", t.notBefore.Sub(now))
	case t.m.outcome == refused:
		w.fail("publish", id, "is handed out, but its Publish said that it is not stored")
	case t.place == leased && t.holder != c:
		w.fail("lease", id, "is handed out by %s, but leased to %s", c.name, t.holder.name)
	case t.place == waiting:
		w.fail("lease", id, "is handed out by %s, but was released", c.name)
	case t.holds(c, d.Receipt) && t.handed:
		w.fail("lease", id, "is handed out twice by %s", c.name)
	case t.holds(c, d.Receipt) && !now.Before(t.deadline):
		w.fail("lease", id, "is handed out by %s after its lease has ended", c.name)
	case t.m.killer && w.plan.MaxDeliveries > 0 && t.seen > w.plan.MaxDeliveries+1:
		w.fail("killer", id, "kills its consumer for the %dth time", t.seen)
	}
}

// checkHandover fails if a message goes to another consumer before the context of its handler was
// cancelled.
func (w *World) checkHandover(t *track, to *consumer) {
	if t.handed && !t.holder.hasEnded() && t.handler.Err() == nil {
		w.fail("lease", t.m.id, "goes to %s while a handler of %s has it, whose context is not cancelled", to.name, t.holder.name)
	}
}

// checkOrder fails if a message overtakes another one although there is only one consumer.
func (w *World) checkOrder(t *track) {
	g, last := t.group, t.group.last
	if !g.ordered || t.retried || t.expired {
		return
	}
	if last != nil && (t.due.Before(g.lastDue) ||
		t.due.Equal(g.lastDue) && t.m.publisher == last.m.publisher && !t.m.said.IsZero() && t.m.said.Before(last.m.made)) {
		w.fail("order", t.m.id, "comes after %s, which was due later", alias(last.m.id))
	}
	g.last, g.lastDue = t, t.due
}

// buried records that a message was dead-lettered.
func (w *World) buried(g *group, who string, b store.Buried) {
	w.log(who, "buries (%s)", []any{b.Reason}, b.ID)
	t := w.messages[b.ID].tracks[g.name]
	var deliveries int
	if n, err := fmt.Sscanf(b.Reason, "not acked in %d deliveries", &deliveries); n == 1 && err == nil &&
		!strings.Contains(b.Reason, "lost") && deliveries > t.seen {
		w.fail("dead", b.ID, "is a dead message (%s), but %d handlers have seen it", b.Reason, t.seen)
	}
	t.end()
}
