package whole

import (
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// turn is what an ordering key of a group is doing, as its handlers see it.
type turn struct {
	owner   string    // the message that is handled, or that has failed and will be tried again; "": none
	freed   time.Time // when the last one was done with
	lastDue time.Time // of the message that began last
}

// handling is how long handlers take for a message with an ordering key.
const handling = 5 * time.Millisecond

// begins checks that a message with an ordering key comes alone, and in order. It returns when the key was free
// for it. The caller holds mu.
func (l *ledger) begins(e *entry, c *consumer, d redisdelay.Delivery) (free time.Time) {
	if e.ordering == "" {
		return time.Time{}
	}
	key := c.group + "/" + e.ordering
	t := l.turns[key]
	if t == nil {
		t = &turn{}
		l.turns[key] = t
	}
	if t.owner != "" && t.owner != e.uuid {
		l.broke("turns", "%s was delivered to %s, while %s waits for %s", e.uuid, c.name, key, t.owner)
	}
	if d.Attempt == 1 && d.DueAt.Before(t.lastDue) {
		l.broke("turns", "%s was delivered to %s after a message of %s that was due %v later", e.uuid, c.name, key, t.lastDue.Sub(d.DueAt))
	}
	if d.Attempt == 1 {
		t.lastDue = d.DueAt
	}
	t.owner = e.uuid
	return t.freed
}

// ends notes that a handler is done with a message. If it has failed, its ordering key waits for it until it is a
// dead message.
func (l *ledger) ends(c *consumer, msg *message.Message, ok bool) {
	d, _ := redisdelay.DeliveryFromContext(msg.Context())
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[msg.UUID]
	if e == nil || e.ordering == "" {
		return
	}
	if t := l.turns[c.group+"/"+e.ordering]; ok || d.Attempt >= maxDeliveries {
		t.owner, t.freed = "", time.Now()
	}
}

// handled is delivered for a handler that takes its time.
func (w *world) handled(c *consumer, msg *message.Message) bool {
	ok := w.delivered(c, msg)
	if slices.ContainsFunc(w.plan.Publishers, func(p PublisherPlan) bool { return p.Ordered > 0 }) {
		wait(handling)
	}
	w.ends(c, msg, ok)
	return ok
}
