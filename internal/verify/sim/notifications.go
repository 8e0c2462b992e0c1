package sim

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/notify"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/sim/store"
)

// nodesOf are the partitions as nodes. Each has a channel with its number, and one for heartbeats.
type nodesOf struct{ c *consumer }

// Node implements notify.Network.
func (n nodesOf) Node(_ context.Context, channel string) (notify.Node, error) {
	partition, err := strconv.Atoi(channel)
	return nodeOf{n.c.link(partition)}, err
}

// Refresh implements notify.Network.
func (nodesOf) Refresh(context.Context) {}

// Publish implements notify.Network.
func (n nodesOf) Publish(_ context.Context, channel string, _ time.Duration) (refused bool, err error) {
	number, _, _ := strings.Cut(channel, ":")
	partition, err := strconv.Atoi(number)
	if err == nil {
		n.c.link(partition).sendHeartbeat(channel)
	}
	return false, err
}

type nodeOf struct{ l *link }

// Connect implements notify.Node.
func (n nodeOf) Connect() notify.Conn {
	return &connection{link: n.l, listener: n.l.listen(n.l.consumer.group.name, n.l.consumer.name)}
}

// connection is a connection for notifications.
type connection struct {
	link     *link
	listener *listener
}

// Subscribe implements notify.Conn.
func (c *connection) Subscribe(_ context.Context, channel string) error {
	c.listener.subscribe(channel)
	return nil
}

// Unsubscribe implements notify.Conn.
func (c *connection) Unsubscribe(context.Context, string) error { return nil }

// Receive implements notify.Conn.
func (c *connection) Receive(ctx context.Context) (notify.Event, error) {
	h, err := c.listener.next(ctx)
	switch {
	case err != nil:
		return notify.Event{}, err
	case h.subscribed != "":
		return notify.Event{Kind: notify.Subscribed, Channel: h.subscribed}, nil
	case h.heartbeat != "":
		return notify.Event{Kind: notify.Message, Channel: h.heartbeat}, nil
	}
	return notify.Event{Kind: notify.Message, Channel: strconv.Itoa(c.link.partition), Text: text(h.notice)}, nil
}

// Close implements notify.Conn.
func (c *connection) Close() { c.listener.close() }

const textForm = "%d %t %d %t %t %t"

// text returns a notice as a connection transmits it.
func text(n store.Notice) string {
	alone := n.Group != "" && !n.Claimed && !n.Paused
	return fmt.Sprintf(textForm, n.Wait, n.Claimed, n.Found, n.Grown, n.Paused, alone)
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
	_, _ = fmt.Sscanf(text, textForm, &n.Wait, &n.Claimed, &n.Found, &n.Grown, &n.Paused, &alone) // from text
	if n.Paused {
		e.link.consumer.seePause(e.link.partition)
	}
	e.handler.OnHint(queue.Hint{
		In: time.Duration(n.Wait) * time.Microsecond, Claimed: n.Claimed, Found: n.Found, ForGroup: alone, Grown: n.Grown, Paused: n.Paused,
	})
}
