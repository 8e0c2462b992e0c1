package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/sim/store"
)

// read handles one message after another.
func (c *consumer) read(ctx context.Context, n int, messages <-chan *message.Message) {
	r := rng(c.w.seed, fmt.Sprintf("%s/reader %d", c.name, n))
	for {
		c.wait(1)
		msg := c.receive(messages)
		if msg == nil {
			c.wait(-1)
			return
		}
		took, early, nack := c.begin(msg, chance(r, c.plan.Nacks), r.Float64()) //nolint:contextcheck // the message has a context of its own
		if c.rest(ctx, took, early) != nil {
			return
		}
		c.done()
		if nack {
			msg.Nack()
		} else {
			msg.Ack()
		}
		if chance(r, c.plan.Pauses) && !c.w.isQuiet() {
			c.w.note(c.name, "stops reading")
			if c.rest(ctx, between(r, 0, 10*time.Second), c.w.quieted) != nil {
				return
			}
		}
	}
}

// wait changes the number of waiting readers.
func (c *consumer) wait(more int) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.free += more
	switch {
	case c.free == 1 && more > 0:
		c.idleSince = time.Now()
		if c.unread && time.Since(c.busySince) > maxHold/4 {
			c.noticed = time.Now().Add(maxBlind)
		}
		c.unread = false
	case c.free == 0:
		c.busySince = time.Now()
	}
}

// done records that a handler has ended.
func (c *consumer) done() {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.handling--
	c.unread = c.free == 0
}

// receive waits for a message; nil if the channel is closed.
func (c *consumer) receive(messages <-chan *message.Message) *message.Message {
	for {
		halt, resume := c.signals()
		select {
		case <-resume:
		case <-c.dead:
			return nil
		case <-c.over:
			return nil
		}
		select {
		case msg := <-messages:
			return msg
		case <-halt:
		case <-c.dead:
			return nil
		case <-c.over:
			return nil
		}
	}
}

// begin records that a handler has a message, and draws how long it takes and how it ends.
func (c *consumer) begin(msg *message.Message, fails bool, draw float64) (took time.Duration, early <-chan struct{}, nack bool) {
	c.wait(-1)
	d, _ := msg.Context().Value(deliveryKey{}).(store.Delivery)
	m := c.w.handedOut(msg.Context(), c, d)
	if m == nil {
		return 0, nil, false
	}
	c.w.mu.Lock()
	c.handling++
	c.unread = c.free == 0 && c.handling < c.plan.MaxInFlight
	c.w.mu.Unlock()
	if m.killer && !c.w.isQuiet() {
		c.die("is killed by its message")
		return 0, nil, false
	}
	switch shortest, longest, remaining := c.pace(); {
	case c.w.isQuiet():
		took = 0
	case m.slow > 0:
		took = m.slow
	case remaining > 0:
		took = remaining
	default:
		took = shortest + time.Duration(draw*float64(longest-shortest))
	}
	return took, c.w.quieted, fails && !c.w.isQuiet()
}

// pace returns how long handlers take now, and how much longer blocked ones take.
func (c *consumer) pace() (shortest, longest, remaining time.Duration) {
	var cycle time.Duration
	for _, m := range c.plan.Paces {
		cycle += m.For
	}
	if cycle == 0 {
		return 0, 0, 0
	}
	at := time.Since(c.w.start) % cycle
	for _, m := range c.plan.Paces {
		if at < m.For {
			if m.Blocked {
				remaining = m.For - at
			}
			return m.Min, m.Max, remaining
		}
		at -= m.For
	}
	return 0, 0, 0
}
