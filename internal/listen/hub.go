// Package listen hears channels for all subscriptions of one client, over one connection to
// each node. It knows nothing of Redis.
//
// A Hub keeps a line to each node that has a channel that somebody listens to. Each line has
// two goroutines, which end with the last channel on it:
//
//	keep  connects, asks for channels, and pauses between attempts  (line.go)
//	read  takes what the node sends                                 (read.go)
package listen

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
)

// Network is where channels are. It is used concurrently.
type Network interface {
	// Node returns the node that has a channel now. Two nodes are the same if they are equal.
	Node(ctx context.Context, channel string) (Node, error)
	// Look makes Node find out anew where channels are. It does not wait for that.
	Look(ctx context.Context)
}

// Node is a server.
type Node interface {
	// Connect returns a connection. The first request opens it.
	Connect() Conn
}

// Conn is a connection to a node. Receive is called by one goroutine, all else by others.
type Conn interface {
	// Join asks for a channel. The node answers each request in turn, with Joined or
	// Refused.
	Join(ctx context.Context, channel string) error
	// Leave asks not to hear a channel. The answer is Left or Refused.
	Leave(ctx context.Context, channel string) error
	// Ping makes the node send something.
	Ping(ctx context.Context) error
	// Receive waits for what the node sends. An error ends the connection.
	Receive(ctx context.Context, patience time.Duration) (Event, error)
	// Close ends Receive, even one under way.
	Close()
}

// Event is what a Conn receives.
type Event struct {
	Kind    Kind
	Channel string // of Joined, Left and Message
	Text    string // of Message
	Err     error  // of Refused
}

// Kind is what an Event says.
type Kind int

// The kinds of events.
const (
	Silence Kind = iota // nothing came
	Message
	Joined
	Left    // asked for, or because the channel has moved to another node
	Refused // the request whose turn it is
	Pong
)

// Ear hears a channel. Its methods are not called concurrently, nor after Close of its
// Listener. They must not block, since all channels of a client share them, nor call the
// Listener.
type Ear interface {
	// Opened says that the channel is heard from now on. What was sent before may be lost.
	Opened()
	Heard(text string)
	// Failed says why an attempt to hear the channel has ended. More follow.
	Failed(err error)
}

// Hub hears channels. It is safe for concurrent use.
type Hub struct {
	// immutable
	network           Network
	silence, patience time.Duration

	mu       sync.Mutex
	channels map[string]*channel // guarded by mu; those that somebody listens to
	lines    []*line             // guarded by mu; those whose goroutines have not ended
}

// New returns a Hub. A connection on which nothing comes for the time of silence is pinged,
// and given up if nothing comes within patience then.
func New(network Network, silence, patience time.Duration) *Hub {
	return &Hub{network: network, silence: silence, patience: patience, channels: map[string]*channel{}}
}

// channel is a channel that somebody listens to. It is guarded by Hub.mu.
type channel struct {
	name      string
	listeners map[*Listener]struct{}
	line      *line
	stage     stage
	again     time.Time       // when to ask again, after a refusal
	pause     backoff.Backoff // between refusals
}

// stage is how far a channel is.
type stage int

const (
	wanted stage = iota
	asked
	open
	refused // until channel.again
)

func (c *channel) tell(what func(Ear)) {
	for l := range c.listeners {
		what(l.ear)
	}
}

// Listener is a place of an Ear at a Hub.
type Listener struct {
	hub     *Hub
	channel *channel
	ear     Ear
}

// Listen makes an Ear hear a channel until Close. It does not wait for a connection; if there
// is one, it calls Opened.
func (h *Hub) Listen(name string, ear Ear) *Listener {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.channels[name]
	if c == nil {
		c = &channel{
			name: name, listeners: map[*Listener]struct{}{}, pause: backoff.Backoff{Min: minPause, Max: maxPause},
		}
		h.channels[name] = c
		h.put(c, nil)
	}
	l := &Listener{hub: h, channel: c, ear: ear}
	c.listeners[l] = struct{}{}
	if c.stage == open {
		ear.Opened()
	}
	return l
}

// Retry says that an attempt to hear the channel will probably succeed now.
func (l *Listener) Retry() {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	l.channel.again = time.Time{}
	tell(l.channel.line.retry)
	tell(l.channel.line.wake)
}

// Close ends the listening. If nobody listens at the Hub any more, it waits until its
// connections are closed.
func (l *Listener) Close() {
	for _, ended := range l.hub.leave(l) {
		<-ended
	}
}

// leave returns what to wait for.
func (h *Hub) leave(l *Listener) (ends []<-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := l.channel
	delete(c.listeners, l)
	if len(c.listeners) == 0 && h.channels[c.name] == c {
		delete(h.channels, c.name)
		c.line.drop(c)
	}
	if len(h.channels) > 0 {
		return nil
	}
	for _, line := range h.lines {
		ends = append(ends, line.ended)
	}
	return ends
}

// put puts a channel on the line to a node, or on the line for channels whose node is not
// known. The caller holds mu.
func (h *Hub) put(c *channel, node Node) {
	i := slices.IndexFunc(h.lines, func(l *line) bool { return l.node == node && !l.closing })
	if i < 0 {
		i = len(h.lines)
		h.lines = append(h.lines, newLine(h, node))
		go h.lines[i].keep() // until closing is set
	}
	c.line, c.stage = h.lines[i], wanted
	c.line.channels[c.name] = c
	tell(c.line.wake)
}

// remove forgets a line that has ended.
func (h *Hub) remove(l *line) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = slices.DeleteFunc(h.lines, func(other *line) bool { return other == l })
	close(l.ended)
}

// tell sends a signal on a channel that holds one.
func tell(signal chan<- struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}
