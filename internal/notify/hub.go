// Package notify receives Pub/Sub notifications for all subscriptions of one client, over one
// connection to each node. It knows nothing of Redis.
//
// A Hub keeps a connection to each node that has a channel with a Listener. Each connection has
// two goroutines, which end with its last channel, and one for each heartbeat while it is published:
//
//	run      connects, subscribes to channels, and pauses between attempts  (conn.go)
//	read     handles what the node sends                                    (read.go)
//	publish  publishes a heartbeat                                          (heartbeat.go)
package notify

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
)

// Network finds the nodes of channels. It is used concurrently.
type Network interface {
	// Node returns the current node of a channel. Two nodes are the same if they are equal.
	Node(ctx context.Context, channel string) (Node, error)
	// Refresh makes Node look up the places of channels again. It does not wait for that.
	Refresh(ctx context.Context)
	// Publish publishes an empty text in the same way as notifications. It ends soon after the timeout. A channel is on the
	// same node as another one whose name is a prefix of its name. refused says that the node has refused the call.
	Publish(ctx context.Context, channel string, timeout time.Duration) (refused bool, err error)
}

// Node is a server.
type Node interface {
	// Connect returns a connection. The first request opens it.
	Connect() Conn
}

// Conn is a connection to a node. One goroutine calls Receive, others call the other methods.
type Conn interface {
	// Subscribe asks for a channel. The node answers requests in order, with Subscribed or
	// Refused.
	Subscribe(ctx context.Context, channel string) error
	// Unsubscribe ends a subscription. The answer is Unsubscribed or Refused.
	Unsubscribe(ctx context.Context, channel string) error
	// Receive waits for an event. An error ends the connection.
	Receive(ctx context.Context) (Event, error)
	// Close closes the connection and ends a Receive under way.
	Close()
}

// Event is something that a Conn has received.
type Event struct {
	Kind    Kind
	Channel string // of Subscribed, Unsubscribed and Message
	Text    string // of Message
	Err     error  // of Refused
}

// Kind is the kind of an Event.
type Kind int

// The kinds of events.
const (
	Message Kind = iota
	Subscribed
	Unsubscribed // as requested, or because the channel has moved to another node
	Refused      // the oldest unanswered request
	Other        // to be ignored
)

// Handler receives the notifications of a channel. Its methods are not called concurrently, nor
// after Close of the Listener. They must not block, because all channels of a client share their
// goroutine, and they must not call the Listener.
type Handler interface {
	// OnOpen is called when the subscription begins, or begins again, to receive notifications. Earlier ones may be lost.
	OnOpen()
	OnMessage(text string)
	// OnError is called with the reason when an attempt to receive notifications fails. More attempts follow.
	OnError(err error)
}

// Hub distributes notifications to Handlers. It is safe for concurrent use.
type Hub struct {
	// immutable
	network           Network
	interval, timeout time.Duration

	mu       sync.Mutex
	channels map[string]*channel // guarded by mu; those with Listeners
	conns    []*nodeConn         // guarded by mu; those whose goroutines run
}

// New returns a Hub that publishes a heartbeat at this interval. It drops a connection that does not receive the
// heartbeat, or the answer to another request, within the timeout.
func New(network Network, interval, timeout time.Duration) *Hub {
	return &Hub{network: network, interval: interval, timeout: timeout, channels: map[string]*channel{}}
}

// channel is a channel with Listeners. It is guarded by Hub.mu.
type channel struct {
	name      string
	listeners []*Listener
	conn      *nodeConn
	state     state
	err       error           // of the last attempt; nil if the channel works, or before the first attempt has ended
	retryAt   time.Time       // when to subscribe again, after a refusal
	backoff   backoff.Backoff // between refusals
}

// state is the state of a channel's subscription.
type state int

const (
	wanted state = iota
	asked
	open
	refused // until channel.retryAt
)

// become changes the state. It also updates the connection, so that it need not check all channels.
func (c *channel) become(s state) {
	if c.state = s; s == wanted || s == refused {
		c.conn.waiting[c] = struct{}{}
	} else {
		delete(c.conn.waiting, c)
	}
}

func (c *channel) each(call func(Handler)) {
	for _, l := range c.listeners {
		call(l.handler)
	}
}

// Listener is a Handler's registration with a Hub.
type Listener struct {
	hub     *Hub
	channel *channel
	handler Handler
}

// Listen registers a Handler for a channel until Close. It does not wait for a connection. It calls
// OnOpen if the channel works already, and OnError if the last attempt has failed.
func (h *Hub) Listen(name string, handler Handler) *Listener {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.channels[name]
	if c == nil {
		c = &channel{
			name: name, backoff: backoff.Backoff{Min: minPause, Max: maxPause},
		}
		h.channels[name] = c
		h.assign(c, nil)
	}
	l := &Listener{hub: h, channel: c, handler: handler}
	c.listeners = append(c.listeners, l)
	switch {
	case c.state == open && !c.conn.worksSince.IsZero():
		handler.OnOpen()
	case c.err != nil:
		handler.OnError(c.err)
	}
	return l
}

// Retry starts the next attempt to subscribe now, because it will probably succeed.
func (l *Listener) Retry() {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	l.channel.retryAt = time.Time{}
	notify(l.channel.conn.retry)
	notify(l.channel.conn.wake)
}

// Close removes the Handler. If it was the Hub's last one, Close waits until all connections are
// closed.
func (l *Listener) Close() {
	for _, ended := range l.hub.unlisten(l) {
		<-ended
	}
}

// unlisten removes a Listener, and returns the channels that Close has to wait for.
func (h *Hub) unlisten(l *Listener) (ends []<-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := l.channel
	c.listeners = slices.DeleteFunc(c.listeners, func(other *Listener) bool { return other == l })
	if len(c.listeners) == 0 && h.channels[c.name] == c {
		delete(h.channels, c.name)
		c.conn.drop(c)
	}
	if len(h.channels) > 0 {
		return nil
	}
	for _, conn := range h.conns { // including those whose channels have moved away unnoticed
		conn.end()
		ends = append(ends, conn.ended)
	}
	return ends
}

// assign assigns a channel to the connection of its node, or to the one for channels whose node is
// unknown (node is nil). The caller holds mu.
func (h *Hub) assign(c *channel, node Node) {
	i := slices.IndexFunc(h.conns, func(other *nodeConn) bool { return other.node == node && !other.closing })
	if i < 0 {
		i = len(h.conns)
		h.conns = append(h.conns, newNodeConn(h, node))
		go h.conns[i].run() // until closing is set
	}
	c.conn = h.conns[i]
	c.conn.channels[c.name] = c
	c.become(wanted)
	notify(c.conn.wake)
	if c.conn.broken {
		notify(c.conn.retry) // skip the rest of the pause
	}
}

// removeConn removes a connection whose goroutines have ended.
func (h *Hub) removeConn(n *nodeConn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conns = slices.DeleteFunc(h.conns, func(other *nodeConn) bool { return other == n })
	close(n.ended)
}

// notify sends a signal on a channel with a buffer of one.
func notify(signal chan<- struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}
