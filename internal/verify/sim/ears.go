package sim

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/listen"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/sim/store"
)

const (
	silence  = 7 * time.Second
	patience = 2500 * time.Millisecond
)

// nodesOf are the partitions as nodes, each with a channel that has its number.
type nodesOf struct{ c *consumer }

// Node implements listen.Network.
func (n nodesOf) Node(_ context.Context, channel string) (listen.Node, error) {
	partition, err := strconv.Atoi(channel)
	return nodeOf{n.c.link(partition)}, err
}

// Look implements listen.Network.
func (nodesOf) Look(context.Context) {}

type nodeOf struct{ l *link }

// Connect implements listen.Node.
func (n nodeOf) Connect() listen.Conn {
	return &connection{link: n.l, listener: n.l.listen(n.l.consumer.group.name, n.l.consumer.name)}
}

// connection is a connection for notifications.
type connection struct {
	link     *link
	listener *listener
	pinged   bool // owned by Receive, as Ping is called between its calls
}

// Join implements listen.Conn. A connection has one channel, and has joined it.
func (c *connection) Join(context.Context, string) error { return nil }

// Leave implements listen.Conn.
func (c *connection) Leave(context.Context, string) error { return nil }

// Ping implements listen.Conn.
func (c *connection) Ping(context.Context) error {
	c.link.w.mu.Lock()
	defer c.link.w.mu.Unlock()
	c.pinged = !time.Now().Before(c.link.w.deaf[c.link.process])
	return nil
}

// Receive implements listen.Conn.
func (c *connection) Receive(ctx context.Context, patience time.Duration) (listen.Event, error) {
	if c.pinged {
		c.pinged = false
		return listen.Event{Kind: listen.Pong}, nil
	}
	first := !c.listener.opened
	notice, silent, err := c.listener.next(ctx, patience)
	switch {
	case err != nil:
		return listen.Event{}, err
	case silent:
		return listen.Event{Kind: listen.Silence}, nil
	case first:
		return listen.Event{Kind: listen.Joined, Channel: strconv.Itoa(c.link.partition)}, nil
	}
	return listen.Event{Kind: listen.Message, Channel: strconv.Itoa(c.link.partition), Text: text(notice)}, nil
}

// Close implements listen.Conn.
func (c *connection) Close() { c.listener.close() }

const textForm = "%d %t %d %t %t"

// text is what a connection carries of a notice.
func text(n store.Notice) string {
	return fmt.Sprintf(textForm, n.Wait, n.Looked, n.Found, n.Grown, n.Paused)
}

// earOf gives a consumer its hints.
type earOf struct {
	link *link
	ear  queue.Ear
}

// Opened implements listen.Ear.
func (e earOf) Opened() { e.ear.Heard(queue.Hint{Opened: true}) }

// Failed implements listen.Ear.
func (e earOf) Failed(err error) { e.ear.Failed(err) }

// Heard implements listen.Ear.
func (e earOf) Heard(text string) {
	var n store.Notice
	_, _ = fmt.Sscanf(text, textForm, &n.Wait, &n.Looked, &n.Found, &n.Grown, &n.Paused) // from text
	if n.Paused {
		e.link.consumer.heardPause(e.link.partition)
	}
	e.ear.Heard(queue.Hint{
		In: time.Duration(n.Wait) * time.Microsecond, Looked: n.Looked, Found: n.Found, Grown: n.Grown, Paused: n.Paused,
	})
}
