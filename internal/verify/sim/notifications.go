package sim

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/notify"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/sim/store"
)

const (
	pingAfter   = 2 * time.Second
	pingTimeout = 2500 * time.Millisecond
)

// nodesOf are the partitions as nodes, each with a channel that has its number.
type nodesOf struct{ c *consumer }

// Node implements notify.Network.
func (n nodesOf) Node(_ context.Context, channel string) (notify.Node, error) {
	partition, err := strconv.Atoi(channel)
	return nodeOf{n.c.link(partition)}, err
}

// Refresh implements notify.Network.
func (nodesOf) Refresh(context.Context) {}

type nodeOf struct{ l *link }

// Connect implements notify.Node.
func (n nodeOf) Connect() notify.Conn {
	return &connection{link: n.l, listener: n.l.listen(n.l.consumer.group.name, n.l.consumer.name)}
}

// connection is a connection for notifications.
type connection struct {
	link     *link
	listener *listener
	pinged   bool // owned by Receive, as Ping is called between its calls
}

// Subscribe implements notify.Conn. A connection has one channel, and has joined it.
func (c *connection) Subscribe(context.Context, string) error { return nil }

// Unsubscribe implements notify.Conn.
func (c *connection) Unsubscribe(context.Context, string) error { return nil }

// Ping implements notify.Conn.
func (c *connection) Ping(context.Context) error {
	c.link.w.mu.Lock()
	defer c.link.w.mu.Unlock()
	c.pinged = !c.listener.dead && !time.Now().Before(c.link.w.silentUntil[c.link.process])
	return nil
}

// Receive implements notify.Conn.
func (c *connection) Receive(ctx context.Context, timeout time.Duration) (notify.Event, error) {
	if c.pinged {
		c.pinged = false
		return notify.Event{Kind: notify.Pong}, nil
	}
	first := !c.listener.opened
	notice, silent, err := c.listener.next(ctx, timeout)
	switch {
	case err != nil:
		return notify.Event{}, err
	case silent:
		return notify.Event{Kind: notify.Timeout}, nil
	case first:
		return notify.Event{Kind: notify.Subscribed, Channel: strconv.Itoa(c.link.partition)}, nil
	}
	return notify.Event{Kind: notify.Message, Channel: strconv.Itoa(c.link.partition), Text: text(notice)}, nil
}

// Close implements notify.Conn.
func (c *connection) Close() { c.listener.close() }

const textForm = "%d %t %d %t %t %t"

// text is what a connection carries of a notice.
func text(n store.Notice) string {
	alone := n.Group != "" && !n.Looked && !n.Paused
	return fmt.Sprintf(textForm, n.Wait, n.Looked, n.Found, n.Grown, n.Paused, alone)
}

// notificationReader gives a consumer its hints.
type notificationReader struct {
	link    *link
	handler queue.HintHandler
}

// OnOpen implements notify.Handler.
func (e notificationReader) OnOpen() { e.handler.OnHint(queue.Hint{Opened: true}) }

// OnError implements notify.Handler.
func (e notificationReader) OnError(err error) { e.handler.OnError(err) }

// OnMessage implements notify.Handler.
func (e notificationReader) OnMessage(text string) {
	var n store.Notice
	var alone bool
	_, _ = fmt.Sscanf(text, textForm, &n.Wait, &n.Looked, &n.Found, &n.Grown, &n.Paused, &alone) // from text
	if n.Paused {
		e.link.consumer.heardPause(e.link.partition)
	}
	e.handler.OnHint(queue.Hint{
		In: time.Duration(n.Wait) * time.Microsecond, Looked: n.Looked, Found: n.Found, Alone: alone, Grown: n.Grown, Paused: n.Paused,
	})
}
