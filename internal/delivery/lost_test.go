package delivery

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/notify"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

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

// fakeNode is the node of all channels. While it is down, connections look open and are silent, and nothing can be published.
type fakeNode struct {
	down      atomic.Bool
	heartbeat chan struct{} // has something after a heartbeat has arrived
	mu        sync.Mutex
	conn      *fakeConn // guarded by mu; the last one
}

func (n *fakeNode) Node(context.Context, string) (notify.Node, error) { return n, nil }
func (n *fakeNode) Refresh(context.Context)                           {}

func (n *fakeNode) Publish(_ context.Context, channel string, timeout time.Duration) (refused bool, err error) {
	n.mu.Lock()
	conn := n.conn
	n.mu.Unlock()
	if err := conn.answer(notify.Message, channel); err != nil {
		time.Sleep(timeout) //nolint:forbidigo // stands for a server that does not answer, in a bubble
		return false, err
	}
	signal(n.heartbeat)
	return false, nil
}

func (n *fakeNode) Connect() notify.Conn {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conn = &fakeConn{node: n, sent: make(chan notify.Event, 10), closed: make(chan struct{})}
	return n.conn
}

type fakeConn struct {
	node   *fakeNode
	sent   chan notify.Event
	closed chan struct{}
}

func (c *fakeConn) answer(kind notify.Kind, channel string) error {
	if c.node.down.Load() {
		return errDown
	}
	c.sent <- notify.Event{Kind: kind, Channel: channel}
	return nil
}

func (c *fakeConn) Subscribe(_ context.Context, channel string) error {
	_ = c.answer(notify.Subscribed, channel) // it may be silent
	return nil
}

func (c *fakeConn) Unsubscribe(_ context.Context, channel string) error {
	_ = c.answer(notify.Unsubscribed, channel) // it may be silent
	return nil
}

func (c *fakeConn) Receive(context.Context) (notify.Event, error) {
	select {
	case e := <-c.sent:
		return e, nil
	case <-c.closed:
		return notify.Event{}, errDown
	}
}

func (c *fakeConn) Close() { close(c.closed) }

// TestLostNotificationsDelayMessagesAtMostThePollInterval lets notifications fail silently just after a heartbeat. A message
// that is due then is handed out within the poll interval, though the next poll is far away.
func TestLostNotificationsDelayMessagesAtMostThePollInterval(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(0)
		node := &fakeNode{heartbeat: make(chan struct{}, 1)}
		topic := hubTopic{&fakeTopic{groups: []*fakeGroup{g}}, notify.New(node, notify.Interval, notify.Timeout)}
		r := runAt(t, topic, 1, func(c *Config) { c.PollInterval = notify.Interval + quietMargin })
		latest := time.Duration(0)
		for range 20 {
			pass(time.Minute)
			for before := g.claims(); g.claims() == before; { // a poll may have found the message before
				pass(100 * time.Millisecond)
			}
			before := g.claims()
			pass(quietPoll / 2)
			require.LessOrEqual(t, g.claims()-before, 1, "it relies on notifications")
			<-node.heartbeat // an old one
			<-node.heartbeat
			node.down.Store(true)
			latest = max(latest, unannounced(g, r))
			pass(time.Minute)
			node.down.Store(false)
		}
		assert.LessOrEqual(t, latest, notify.Interval+notify.Timeout+fallbackInterval)
		assert.Less(t, latest, notify.Interval+quietMargin-time.Second, "the rest is for the claim")
		assert.Greater(t, latest, notify.Interval, "it was not put to the test")
	})
}
