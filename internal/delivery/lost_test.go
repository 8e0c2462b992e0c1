package delivery

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/notify"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// pingAfter is that of package queue.
const pingAfter = 2 * time.Second

// hubTopic is a topic whose listeners share a real Hub.
type hubTopic struct {
	*fakeTopic
	hub *notify.Hub
}

func (t hubTopic) Listen(_ int, _ string, handler queue.HintHandler) Listener {
	return t.hub.Listen("a channel", opening{handler})
}

// opening passes on whether notifications work. None arrives here.
type opening struct{ handler queue.HintHandler }

func (o opening) OnOpen()           { o.handler.OnHint(queue.Hint{Opened: true}) }
func (o opening) OnMessage(string)  {}
func (o opening) OnError(err error) { o.handler.OnError(err) }

// fakeNode is the node of all channels. While it is away, connections look open and are silent.
type fakeNode struct {
	away atomic.Bool
	pong chan struct{} // has something after a ping was answered
}

func (n *fakeNode) Node(context.Context, string) (notify.Node, error) { return n, nil }
func (n *fakeNode) Refresh(context.Context)                           {}

func (n *fakeNode) Connect() notify.Conn {
	return &fakeConn{node: n, sent: make(chan notify.Event, 10), closed: make(chan struct{})}
}

type fakeConn struct {
	node   *fakeNode
	sent   chan notify.Event
	closed chan struct{}
}

func (c *fakeConn) answer(kind notify.Kind, channel string) error {
	if c.node.away.Load() {
		return nil
	}
	c.sent <- notify.Event{Kind: kind, Channel: channel}
	if kind == notify.Pong {
		signal(c.node.pong)
	}
	return nil
}

func (c *fakeConn) Subscribe(_ context.Context, channel string) error {
	return c.answer(notify.Subscribed, channel)
}

func (c *fakeConn) Unsubscribe(_ context.Context, channel string) error {
	return c.answer(notify.Unsubscribed, channel)
}

func (c *fakeConn) Ping(context.Context) error { return c.answer(notify.Pong, "") }

func (c *fakeConn) Receive(_ context.Context, patience time.Duration) (notify.Event, error) {
	select {
	case e := <-c.sent:
		return e, nil
	case <-time.After(patience):
		return notify.Event{Kind: notify.Timeout}, nil
	case <-c.closed:
		return notify.Event{}, errAway
	}
}

func (c *fakeConn) Close() { close(c.closed) }

// TestALostConnectionIsMadeUpForInTime lets a connection fall silent just after its last sign of life. A message that is
// due then is handed out within the poll interval, though the next poll is far away. See quietFrom, which leaves 350 ms for
// round trips.
func TestALostConnectionIsMadeUpForInTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(0)
		node := &fakeNode{pong: make(chan struct{}, 1)}
		topic := hubTopic{&fakeTopic{groups: []*fakeGroup{g}}, notify.New(node, pingAfter, queue.SilenceBound-pingAfter)}
		r := runAt(topic, 1, func(c *Config) { c.PollInterval = quietFrom })
		latest := time.Duration(0)
		for range 20 {
			pass(doubt + quietPoll) // a poll may have found the message before
			before := g.claims()
			pass(quietPoll)
			require.LessOrEqual(t, g.claims()-before, 2, "it relies on notifications")
			<-node.pong // an old one
			<-node.pong
			node.away.Store(true)
			latest = max(latest, unannounced(g, r))
			pass(time.Minute)
			node.away.Store(false)
		}
		assert.LessOrEqual(t, latest, quietFrom-350*time.Millisecond)
		assert.Greater(t, latest, queue.SilenceBound, "it was not put to the test")
		r.end(t)
	})
}
