package sim

import (
	"slices"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/sim/store"
)

// A consumer's calls at the store, and what they show about messages. All run with World.mu held.

// ids returns the ids of a list, for example of deliveries.
func ids[T, U any](list []T, of func(T) U) []U {
	result := make([]U, len(list))
	for i, v := range list {
		result[i] = of(v)
	}
	return result
}

// claimed is the answer to a claim.
type claimed struct {
	store.Claims
	retired bool
}

func (c *consumer) claim(l *link, now int64, r store.Request) claimed {
	w, p := c.w, c.w.topic.Partition(l.partition)
	w.stats.Claims++
	claims, known := p.Claim(now, r)
	if !known { // the claim registers the group again
		if !w.registerAt(c.group, l.partition) {
			if w.Verbose {
				w.log(c.name, "hears at %d that its group is retired (#%d)", []any{l.partition, r.Number})
			}
			return claimed{retired: true}
		}
		claims, _ = p.Claim(now, r)
	}
	if len(claims.Messages) > 0 || w.Verbose {
		w.log(c.name, "claims %d at %d (#%d, next in %v, worker %t, again %t):", []any{
			r.Limit, l.partition, r.Number, time.Duration(claims.Wait) * time.Microsecond, claims.NeedsWorker, claims.Replayed,
		}, ids(claims.Messages, func(m store.Claimed) string { return m.ID })...)
	}
	deadline := time.UnixMilli(claims.Deadline)
	for _, m := range claims.Messages {
		w.excuse(c.group, m.ID)
	}
	defer func() {
		if len(claims.Messages) > 0 {
			l.found = time.Now()
		}
	}()
	if !claims.Replayed {
		w.checkAllowed(c.group, l.partition, r, claims)
		for _, b := range claims.Buried { // first, because they release capacity
			w.buried(c.group, c.name, b)
		}
	}
	for _, m := range claims.Messages {
		w.claimed(c, m, deadline, claims.Replayed)
	}
	for _, m := range claims.Returned {
		if t := w.messages[m.ID].tracks[c.group.name]; t.current(m.Receipt) {
			t.back(time.UnixMilli(m.Due), time.Now())
			t.expired = true // as if its lease had ended
		}
	}
	if r.Number < l.number && len(claims.Messages) > 0 {
		w.claimedLate(c, l, claims)
	}
	l.number = max(l.number, r.Number)
	return claimed{Claims: claims}
}

// claimed records that a consumer has leased a message.
func (w *World) claimed(c *consumer, m store.Claimed, deadline time.Time, replayed bool) {
	now := time.Now()
	msg := w.messages[m.ID]
	if msg == nil {
		w.fail("state", m.ID, "is claimed, but was never published")
		return
	}
	if msg.gone {
		w.fail("resurrected", m.ID, "is claimed after it was taken back")
		return
	}
	t := msg.tracks[c.group.name]
	if t == nil {
		t = c.group.follow(msg, time.UnixMilli(m.Due), now)
	}
	if replayed && t.holds(c, m.Receipt) {
		t.deadline = deadline
		return
	}
	if t.place == done {
		w.fail("resurrected", m.ID, "is claimed again after its end")
		return
	}
	if now.Before(t.due) && t.place == waiting {
		w.fail("early", m.ID, "is claimed before it is due")
	}
	if t.place == leased {
		w.checkHandover(t, c)
		t.retried, t.expired, t.ready = true, true, t.deadline
		if t.handed {
			t.since = latest(t.since, t.deadline)
		}
	}
	for _, c := range t.group.consumers {
		t.since = latest(t.since, c.ahead(t))
	}
	if t.place != leased && !t.rules().lease() {
		w.fail("limit", m.ID, "is claimed by %s, the group has %d in delivery at %d, at most %d",
			c.name, t.rules().held, t.m.partition, t.rules().max)
	}
	w.takeTurn(t)
	t.release()
	t.place, t.holder, t.receipt, t.deadline, t.claimed = leased, c, m.Receipt, deadline, now
	t.group.add(t)
}

// received records that a consumer has received the answer to a claim.
func (c *consumer) received(l *link, claims claimed, start time.Time) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	now := time.Now()
	if l.opened.IsZero() || !l.refused.IsZero() || l.asked.Before(c.group.at(l.partition).untold) {
		l.opened = now
	}
	l.asked = start
	if l.refused = (time.Time{}); claims.retired {
		l.refused = now
	}
	if start.After(l.misled) && !l.informed {
		l.informed, l.informedAt = true, now
	}
	for _, m := range claims.Messages {
		t := c.w.messages[m.ID].tracks[c.group.name]
		if t.holds(c, m.Receipt) && t.received.IsZero() && !t.handed {
			t.received, t.slow = now, now.Sub(start) > c.w.plan.Lease/2
			c.held++
			c.heldBytes += t.m.size
		}
	}
}

func (c *consumer) ack(l *link, list []store.Delivery) queue.Acked {
	stale, room := c.w.topic.Partition(l.partition).Ack(c.group.name, list)
	c.w.log(c.name, "acks (%d stale):", []any{len(stale)}, ids(list, func(d store.Delivery) string { return d.ID })...)
	// Cancel skips the messages of a retired group, so its consumers may get either reply.
	orphaned := func(id string) bool { return c.w.topic.Partition(l.partition).Orphaned(c.group.name, id) }
	var want []string
	for _, d := range list { // perhaps two deliveries of a message, of which one is stale
		t := c.w.messages[d.ID].tracks[c.group.name]
		if t.current(d.Receipt) {
			t.end()
		} else if !orphaned(d.ID) {
			want = append(want, d.ID)
		}
	}
	if !slices.Equal(want, slices.DeleteFunc(slices.Clone(stale), orphaned)) {
		c.w.fail("token", "", "%s acks, and the reply says that %v are stale, not %v", c.name, stale, want)
	}
	return queue.Acked{Stale: stale, Room: room}
}

// nacked is the answer to a nack.
type nacked struct {
	stale  []string
	buried []store.Buried
}

func (c *consumer) nack(l *link, now int64, maxDeliveries int, list []store.Nack) nacked {
	stale, buried := c.w.topic.Partition(l.partition).Nack(now, c.group.name, maxDeliveries, list)
	c.w.log(c.name, "nacks (%d stale):", []any{len(stale)}, ids(list, func(n store.Nack) string { return n.ID })...)
	for _, b := range buried {
		c.w.buried(c.group, c.name, b)
	}
	for _, n := range list { // perhaps two deliveries of a message, of which one is stale
		t := c.w.messages[n.ID].tracks[c.group.name]
		if !t.current(n.Receipt) {
			continue
		}
		t.notBefore = dueAfter(now, n.Delay)
		t.back(t.notBefore, time.Now())
	}
	return nacked{stale, buried}
}

func (c *consumer) extend(l *link, now int64, lease int64, list []store.Held) []string {
	stale := c.w.topic.Partition(l.partition).Extend(now, c.group.name, lease, list)
	gone := set(stale)
	if c.w.Verbose || len(stale) > 0 {
		c.w.log(c.name, "extends (stale %v):", []any{stale}, ids(list, func(h store.Held) string { return h.ID })...)
	}
	for _, h := range list {
		if !gone[h.ID] {
			t := c.w.messages[h.ID].tracks[c.group.name]
			t.deadline = ceil(time.UnixMicro(now)).Add(time.Duration(lease) * time.Millisecond)
		}
	}
	return stale
}

func (c *consumer) release(l *link, now int64, list []store.Release) []string {
	stale := c.w.topic.Partition(l.partition).Release(now, c.group.name, list)
	c.w.log(c.name, "releases (%d stale):", []any{len(stale)}, ids(list, func(r store.Release) string { return r.ID })...)
	for _, r := range list {
		t := c.w.messages[r.ID].tracks[c.group.name]
		if t.current(r.Receipt) {
			t.back(time.UnixMilli(r.Due), time.Now())
			c.group.at(l.partition).refund(time.Duration(r.Age) * time.Millisecond)
		}
	}
	return stale
}

func (c *consumer) bury(l *link, now int64, list []store.Burial) []string {
	stale := c.w.topic.Partition(l.partition).Bury(now, c.group.name, list)
	gone := set(stale)
	for _, b := range list {
		if !gone[b.ID] {
			c.w.buried(c.group, c.name, store.Buried{ID: b.ID, Reason: b.Reason})
		}
	}
	return stale
}

func set(ids []string) map[string]bool {
	if len(ids) == 0 {
		return map[string]bool{}
	}
	result := make(map[string]bool, len(ids))
	for _, id := range ids {
		result[id] = true
	}
	return result
}

// dueAfter returns when a message with a delay in ms is due.
func dueAfter(now, delay int64) time.Time {
	if delay <= 0 {
		return time.UnixMilli(now / 1000)
	}
	return ceil(time.UnixMicro(now)).Add(time.Duration(delay) * time.Millisecond)
}

// ceil returns a time as a score: in whole milliseconds, rounded up.
func ceil(t time.Time) time.Time { return time.UnixMilli((t.UnixMicro() + 999) / 1000) }
