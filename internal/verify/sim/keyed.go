package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/sim/store"
)

// change is a call of Cancel or Reschedule. It is guarded by World.mu.
type change struct {
	kind, key string
	held      []string // by partition: the message that held the key when the call began
	did       []string // the changed messages
}

// changeKey is the context key of a call's change.
type changeKey struct{}

// anyKey draws a key.
func (p *publisher) anyKey() string { return fmt.Sprintf("k%d", p.rng.IntN(max(1, p.plan.Keys))) }

// change cancels or reschedules the message that holds some key.
func (p *publisher) change() {
	c := &change{kind: "cancel", key: p.anyKey()}
	delay := between(p.rng, 0, p.plan.MaxDelay)
	if chance(p.rng, 0.5) {
		c.kind = "reschedule"
	}
	p.calls.Go(func() {
		p.w.mu.Lock()
		c.held = p.w.holders(c.key)
		p.w.mu.Unlock()
		start := time.Now()
		ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), changeKey{}, c), p.timeout())
		defer cancel()
		var err error
		if c.kind == "cancel" {
			_, err = p.publisher.Cancel(ctx, topicName, c.key)
		} else {
			_, err = p.publisher.Reschedule(ctx, topicName, c.key, delay)
		}
		p.w.checkEnd(p, start)
		p.w.checkChange(p, c, err)
	})
}

// holders lists the messages that hold a key, by partition. The caller holds mu.
func (w *World) holders(key string) []string {
	list := make([]string, w.topic.RaisePartitions(1))
	for n := range list {
		list[n] = w.topic.Partition(n).Holder(key)
	}
	return list
}

// cancelled cancels a message in a partition. World.mu is held.
func (p *publisher) cancelled(ctx context.Context, partition int, key string) string {
	part := p.w.topic.Partition(partition)
	standing, ok := part.Cancel(part.Lead(key))
	if !ok {
		return ""
	}
	p.did(ctx, standing.ID)
	p.w.withdrawn(standing.ID)
	return standing.ID
}

// rescheduled reschedules a message in a partition. World.mu is held.
func (p *publisher) rescheduled(ctx context.Context, partition int, now int64, key string, delay int64) string {
	part, due := p.w.topic.Partition(partition), dueAfter(now, delay)
	standing, ok := part.Reschedule(now, part.Lead(key), due.UnixMilli())
	if !ok {
		return ""
	}
	id := standing.ID
	p.did(ctx, id)
	m := p.w.messages[id]
	m.due, m.notBefore = due, due
	for _, t := range m.tracks {
		if t.place == waiting {
			t.move(due, time.Now())
		}
	}
	return id
}

// did records that a call has changed a message.
func (p *publisher) did(ctx context.Context, id string) {
	c, _ := ctx.Value(changeKey{}).(*change)
	c.did = append(c.did, id)
	p.w.log(p.name, "%ss", []any{c.kind}, id)
}

// checkChange fails if the answer of a call is wrong.
func (w *World) checkChange(p *publisher, c *change, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return
	}
	w.log(p.name, "%s of %s ends: %v", []any{c.kind, c.key, err}, c.did...)
	missing := errors.Is(err, queue.ErrNotFound)
	switch {
	case err == nil && len(c.did) == 0:
		w.fail("keys", "", "%s of %s has succeeded and done nothing", c.kind, c.key)
	case missing && len(c.did) > 0:
		w.fail("keys", c.did[0], "%s of %s has found nothing, but acted on this", c.kind, c.key)
	case err != nil && !missing:
		return
	}
	now := w.holders(c.key)
	for n, id := range c.held {
		if id != "" && id == now[n] && w.messages[id].concerned(c) {
			w.fail("keys", id, "held its key throughout a %s, which has ended with %v", c.kind, err)
		}
	}
}

// concerned reports whether a call should have changed a message that held its key all the time,
// and has not.
func (m *item) concerned(c *change) bool {
	if c.kind == "cancel" {
		return true
	}
	for _, id := range c.did {
		if id == m.id {
			return false
		}
	}
	for _, t := range m.tracks {
		// It did not wait all the time, or its group is retired, so that no call checks there.
		if t.receipt != (store.Receipt{}) || t.rules().retired {
			return false
		}
	}
	return true
}

// checkKey fails if another partition has a message with the key of a stored message, although the
// number of partitions has never changed.
func (w *World) checkKey(m *item) {
	key := script.TraitsOf(m.id).Key
	if key == "" || w.plan.Raise > 0 {
		return
	}
	for n, id := range w.holders(key) {
		if id != "" && n != m.partition {
			w.fail("keys", m.id, "is stored at %d, while %s holds its key at %d", m.partition, alias(id), n)
		}
	}
}

// checkEnd fails if a call has not ended in time.
func (w *World) checkEnd(p *publisher, start time.Time) {
	if took := time.Since(start); took > p.timeout() {
		w.failNow("publish", "a call of %s has taken %v", p.name, took)
	}
}

// checkIDs fails if the ids of a call do not sort, or lack their keys.
func (p *publisher) checkIDs(messages []queue.Message) {
	last := ""
	for _, m := range messages {
		if m.ID <= last || script.TraitsOf(m.ID) != m.Traits {
			p.w.failNow("ids", "%q comes after %q, for %q", m.ID, last, m.Name)
		}
		last = m.ID
	}
}
