package notify

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
)

const (
	minPause = 500 * time.Millisecond
	maxPause = 30 * time.Second // long, since subscriptions poll meanwhile

	// steady is how long a connection must have received notifications to count as one that worked.
	// If such a connection is lost, it is reopened at once. If a node closes every connection soon,
	// attempts are made with pauses.
	steady = 2 * time.Second

	// recheck is how long a connection without refused channels sleeps; each change wakes it.
	recheck = time.Hour
)

// errMoved means that a channel has moved to another node.
var errMoved = errors.New("the channel has moved to another node")

// nodeConn is a connection to a node. It reconnects whenever the connection is lost.
type nodeConn struct {
	// immutable
	hub    *Hub
	node   Node // nil: for channels whose node is unknown
	ctx    context.Context
	cancel context.CancelFunc
	wake   chan struct{} // signaled when there may be requests to send
	retry  chan struct{} // signaled when an attempt will probably succeed
	ended  chan struct{} // closed when the goroutines have ended

	publishing sync.WaitGroup // heartbeats

	// guarded by Hub.mu
	channels    map[string]*channel
	waiting     map[*channel]struct{} // the channels that are wanted or refused
	unsubscribe []string              // channels without Listeners
	unanswered  []request             // requests, in order
	answeredAt  time.Time             // when the first of them was sent, or an answer to the one before it received
	heartbeat   heartbeat
	worksSince  time.Time // when this connection began to receive notifications; zero: it does not
	broken      bool      // the last attempt has failed
	refresh     bool      // a channel was refused: it may be on another node
	closing     bool      // no more channels may be added
}

// request is a request to subscribe or unsubscribe.
type request struct {
	channel     string
	unsubscribe bool
}

func newNodeConn(h *Hub, node Node) *nodeConn {
	n := &nodeConn{
		hub: h, node: node, channels: map[string]*channel{}, waiting: map[*channel]struct{}{},
		wake: make(chan struct{}, 1), retry: make(chan struct{}, 1), ended: make(chan struct{}),
		heartbeat: heartbeat{backoff: backoff.Backoff{Min: minPause, Max: maxPause}},
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	return n
}

// run connects repeatedly until there are no channels: at once after a connection that worked, else
// after growing pauses.
func (n *nodeConn) run() {
	defer n.hub.removeConn(n)
	defer n.publishing.Wait()
	defer n.cancel()
	pause := backoff.Backoff{Min: minPause, Max: maxPause}
	for !n.empty() {
		err := n.locate(n.all())
		if err == nil && n.node != nil {
			err = n.serve()
		}
		if err == nil {
			continue
		}
		worked := n.fail(err)
		n.hub.network.Refresh(n.ctx)
		if worked {
			pause.Reset()
			continue
		}
		pause.WaitUnless(n.ctx, n.retry)
	}
}

// empty reports whether there are no channels. If so, none is added later.
func (n *nodeConn) empty() bool {
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	n.closing = n.closing || len(n.channels) == 0
	return n.closing
}

func (n *nodeConn) all() []*channel {
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	return slices.Collect(maps.Values(n.channels))
}

// locate moves channels to the connections of their current nodes.
func (n *nodeConn) locate(channels []*channel) error {
	for _, c := range channels {
		node, err := n.hub.network.Node(n.ctx, c.name)
		if err != nil {
			return err
		}
		n.move(c, node)
	}
	return nil
}

func (n *nodeConn) move(c *channel, node Node) {
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	switch {
	case n.channels[c.name] != c: // it has no Listeners now
	case node == n.node:
		c.become(wanted)
	default:
		n.remove(c)
		n.hub.assign(c, node)
	}
}

// drop ends a channel without Listeners. The caller holds Hub.mu.
func (n *nodeConn) drop(c *channel) {
	n.remove(c)
	if len(n.channels) == 0 {
		n.end()
		return
	}
	if c.state == asked || c.state == open {
		n.unsubscribe = append(n.unsubscribe, c.name)
		notify(n.wake)
	}
}

// remove forgets a channel. The caller holds Hub.mu.
func (n *nodeConn) remove(c *channel) {
	delete(n.channels, c.name)
	delete(n.waiting, c)
}

// end ends a connection without channels. The caller holds Hub.mu.
func (n *nodeConn) end() {
	n.closing = true
	n.cancel()
}

// fail calls OnError for all channels. It reports whether the connection had worked for a while.
func (n *nodeConn) fail(err error) (worked bool) {
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	select {
	case <-n.retry: // a signal from before this failure
	default:
	}
	n.broken = true
	for _, c := range n.channels {
		c.become(wanted)
		c.err = err
		c.each(func(e Handler) { e.OnError(err) })
	}
	n.unanswered, n.unsubscribe = nil, nil
	n.heartbeat = heartbeat{backoff: n.heartbeat.backoff}
	worked = !n.worksSince.IsZero() && time.Since(n.worksSince) >= steady
	n.worksSince = time.Time{}
	return worked
}

// serve connects and subscribes to channels until the connection is lost or there are no channels.
func (n *nodeConn) serve() error {
	conn := n.node.Connect()
	retryIn, err := n.send(conn)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer conn.Close() // ends read
	if err != nil || n.empty() {
		return err
	}
	n.connected()
	lost := make(chan error, 1)
	reading.Go(func() { lost <- n.read(conn) })
	for !n.empty() {
		beatIn, err := n.beat()
		if err != nil {
			return err
		}
		timer := time.NewTimer(min(retryIn, beatIn))
		select {
		case <-n.wake:
		case <-timer.C:
		case err = <-lost:
		case <-n.ctx.Done():
		}
		timer.Stop()
		if err == nil {
			retryIn, err = n.send(conn)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// connected starts the time limit of the first answer: connecting may have taken long.
func (n *nodeConn) connected() {
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	n.answeredAt = time.Now()
}

// send sends the requests that are due. It returns after how long the next one may be due.
func (n *nodeConn) send(conn Conn) (retryIn time.Duration, err error) {
	due, refresh := n.due(time.Now())
	if refresh {
		n.hub.network.Refresh(n.ctx)
	}
	for _, c := range due {
		if err := n.locate([]*channel{c}); err != nil {
			n.refuse(c, err)
		}
	}
	requests, retryIn := n.takeRequests(time.Now())
	for _, r := range requests {
		if r.unsubscribe {
			err = conn.Unsubscribe(n.ctx, r.channel)
		} else {
			err = conn.Subscribe(n.ctx, r.channel)
		}
		if err != nil {
			return 0, err
		}
	}
	return retryIn, nil
}

// due returns the refused channels to subscribe to again, and whether channels have been refused
// since the last call.
func (n *nodeConn) due(now time.Time) (channels []*channel, refresh bool) {
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	for c := range n.waiting {
		if c.state == refused && !now.Before(c.retryAt) {
			channels = append(channels, c)
		}
	}
	refresh, n.refresh = n.refresh, false
	return channels, refresh
}

// takeRequests returns the requests to send now, and records them as unanswered, in order. It also
// returns after how long to check again.
func (n *nodeConn) takeRequests(now time.Time) (requests []request, retryIn time.Duration) {
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	retryIn = recheck
	for _, name := range n.unsubscribe { // first, because a channel may have Listeners again
		requests = append(requests, request{channel: name, unsubscribe: true})
	}
	n.unsubscribe = nil
	for c := range n.waiting {
		switch c.state {
		case wanted:
			c.become(asked)
			requests = append(requests, request{channel: c.name})
		case refused:
			retryIn = min(retryIn, c.retryAt.Sub(now))
		}
	}
	if name := n.newChannel(now); name != "" {
		requests = append(requests, request{channel: name})
	} else if wait := n.heartbeat.next.Sub(now); n.heartbeat.channel == "" && wait > 0 {
		retryIn = min(retryIn, wait)
	}
	if len(n.unanswered) == 0 {
		n.answeredAt = now
	}
	n.unanswered = append(n.unanswered, requests...)
	return requests, retryIn
}

// refuse marks a channel as refused; it is subscribed to again later.
func (n *nodeConn) refuse(c *channel, err error) {
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	n.refused(c, err)
}

// refused is refuse for a caller that holds Hub.mu.
func (n *nodeConn) refused(c *channel, err error) {
	if n.channels[c.name] != c {
		return
	}
	c.become(refused)
	c.err, c.retryAt = err, time.Now().Add(c.backoff.Next())
	n.refresh = true
	c.each(func(e Handler) { e.OnError(err) })
	notify(n.wake)
}
