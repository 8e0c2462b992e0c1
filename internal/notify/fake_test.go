package notify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

var (
	errDown    = errors.New("the node is down")
	errNoRight = errors.New("no right to the channel")
)

// fakeNetwork is a network in memory.
type fakeNetwork struct {
	mu        sync.Mutex
	place     map[string]*fakeNode // guarded by mu; where channels are
	unknown   error                // guarded by mu; the error of Node
	refreshes int                  // guarded by mu
	elsewhere *fakeNode            // guarded by mu; where everything is published instead of place; nil: unset
	publish   func() (bool, error) // guarded by mu; Publish calls it, too, unless nil
	published []time.Time          // guarded by mu; heartbeats
}

func (f *fakeNetwork) Node(_ context.Context, channel string) (Node, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unknown != nil {
		return nil, f.unknown
	}
	return f.place[channel], nil
}

func (f *fakeNetwork) Refresh(context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refreshes++
}

// Publish publishes an empty text on the node that has the channel's first part.
func (f *fakeNetwork) Publish(_ context.Context, channel string, _ time.Duration) (refused bool, err error) {
	beside, _, _ := strings.Cut(channel, ":")
	f.mu.Lock()
	node, publish := f.place[beside], f.publish
	if f.elsewhere != nil {
		node = f.elsewhere
	}
	f.published = append(f.published, time.Now())
	f.mu.Unlock()
	if publish != nil {
		if refused, err := publish(); err != nil {
			return refused, err
		}
	}
	node.send(channel, "")
	return false, nil
}

// heartbeats returns how many heartbeats have been published since the last call.
func (f *fakeNetwork) heartbeats() int {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.published)
	f.published = nil
	return n
}

func (f *fakeNetwork) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// fakeNode is a node in memory.
type fakeNode struct {
	mu       sync.Mutex
	down     bool            // guarded by mu
	forbids  map[string]bool // guarded by mu; channels
	attempts []time.Time     // guarded by mu; of connections
	requests []string        // guarded by mu; except for heartbeat channels
	conns    []*fakeConn     // guarded by mu; open ones
}

func (n *fakeNode) Connect() Conn {
	return &fakeConn{node: n, sent: make(chan Event, 1000), lost: make(chan struct{})}
}

func (n *fakeNode) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

// send sends a notification on a channel.
func (n *fakeNode) send(channel, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		if c.channels[channel] && !c.silent {
			c.sent <- Event{Kind: Message, Channel: channel, Text: text}
		}
	}
}

// dropChannel unsubscribes a channel, and its heartbeat channels, as when its slot moves to another node.
func (n *fakeNode) dropChannel(channel string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		for name := range maps.Clone(c.channels) {
			if beside, _, _ := strings.Cut(name, ":"); beside == channel {
				delete(c.channels, name)
				c.sent <- Event{Kind: Unsubscribed, Channel: name}
			}
		}
	}
}

// cut ends all connections.
func (n *fakeNode) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		close(c.lost)
	}
	n.conns = nil
}

// each changes the connections that are open now.
func (n *fakeNode) each(change func(c *fakeConn)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		change(c)
	}
}

// connections returns the number of open connections.
func (n *fakeNode) connections() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.conns)
}

type fakeConn struct {
	node     *fakeNode
	opened   bool            // guarded by fakeNode.mu
	silent   bool            // guarded by fakeNode.mu; nothing arrives, as when a router has lost its state
	mute     bool            // guarded by fakeNode.mu; no request is answered
	channels map[string]bool // guarded by fakeNode.mu
	sent     chan Event
	lost     chan struct{} // closed when the connection ends
}

// request opens the connection if necessary, and makes the node answer.
func (c *fakeConn) request(what, channel string, answer Kind) error {
	n := c.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if !c.opened {
		n.attempts = append(n.attempts, time.Now())
		if n.down {
			return errDown
		}
		c.opened, c.channels = true, map[string]bool{}
		n.conns = append(n.conns, c)
	}
	if !strings.Contains(channel, ":") {
		n.requests = append(n.requests, what+channel)
	}
	switch {
	case c.silent, c.mute:
	case n.forbids[channel], n.forbids[":"] && strings.Contains(channel, ":"):
		c.sent <- Event{Kind: Refused, Err: errNoRight}
	default:
		c.channels[channel] = answer == Subscribed
		c.sent <- Event{Kind: answer, Channel: channel}
	}
	return nil
}

func (c *fakeConn) Subscribe(_ context.Context, channel string) error {
	return c.request("+", channel, Subscribed)
}

func (c *fakeConn) Unsubscribe(_ context.Context, channel string) error {
	return c.request("-", channel, Unsubscribed)
}

func (c *fakeConn) Receive(context.Context) (Event, error) {
	select {
	case e := <-c.sent:
		return e, nil
	case <-c.lost:
		return Event{}, errDown
	}
}

func (c *fakeConn) Close() {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	if i := slices.Index(c.node.conns, c); i >= 0 {
		c.node.conns = slices.Delete(c.node.conns, i, i+1)
		close(c.lost)
	}
}

// fakeHandler records its notifications.
type fakeHandler struct {
	mu  sync.Mutex
	log []string // guarded by mu
}

func (h *fakeHandler) note(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = append(h.log, text)
}

func (h *fakeHandler) OnOpen()               { h.note("open") }
func (h *fakeHandler) OnMessage(text string) { h.note(text) }
func (h *fakeHandler) OnError(err error)     { h.note(err.Error()) }

// received returns the notifications since the last call.
func (h *fakeHandler) received() []string {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.log
	h.log = nil
	return list
}

// scene is a Hub on two nodes: channels "a0", "a1", … are on one and "b0", "b1", … on the
// other.
type scene struct {
	network *fakeNetwork
	a, b    *fakeNode
	hub     *Hub
	open    []*Listener
}

// bubble runs a test on a clock of its own (testing/synctest).
func bubble(t *testing.T, test func(t *testing.T, s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{a: &fakeNode{forbids: map[string]bool{}}, b: &fakeNode{forbids: map[string]bool{}}}
		s.network = &fakeNetwork{place: map[string]*fakeNode{}}
		for i := range 10 {
			s.network.place[fmt.Sprint("a", i)], s.network.place[fmt.Sprint("b", i)] = s.a, s.b
		}
		s.hub = New(s.network, Interval, Timeout)
		test(t, s)
		for _, l := range s.open {
			l.Close() // again, perhaps
		}
		synctest.Wait()
		assert.Zero(t, s.a.connections()+s.b.connections(), "connections after the last Close")
	})
}

// listen listens until the end of the test at the latest.
func (s *scene) listen(channel string) (*fakeHandler, *Listener) {
	handler := &fakeHandler{}
	l := s.hub.Listen(channel, handler)
	s.open = append(s.open, l)
	return handler, l
}

// pass advances the clock, and waits until all goroutines are idle.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // lets a bubble's clock run
	synctest.Wait()
}
