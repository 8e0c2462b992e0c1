package notify

import (
	"errors"
	"slices"
	"time"
)

// ErrNoAnswer means that a node does not answer on a connection that looks open: a router or load
// balancer on the way may have dropped it.
var ErrNoAnswer = errors.New("the connection for notifications does not answer")

// read handles what the node sends until the connection is lost.
func (n *nodeConn) read(conn Conn) error {
	n.hub.mu.Lock()
	n.answeredAt = time.Now() // not the time that connecting took
	n.hub.mu.Unlock()
	for {
		event, err := n.receive(conn)
		if err == nil {
			err = n.handle(event)
		}
		if err != nil {
			return err
		}
	}
}

// receive waits for an event. It pings the node after Hub.pingAfter.
func (n *nodeConn) receive(conn Conn) (Event, error) {
	event, err := conn.Receive(n.ctx, n.hub.pingAfter)
	if err != nil || event.Kind != Timeout {
		return event, err
	}
	if err := conn.Ping(n.ctx); err != nil {
		return Event{}, err
	}
	event, err = conn.Receive(n.ctx, n.hub.pingTimeout)
	if err == nil && event.Kind == Timeout {
		err = ErrNoAnswer
	}
	return event, err
}

// handle applies an event. After an error, the connection must be closed.
func (n *nodeConn) handle(e Event) error {
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	c := n.channels[e.Channel]
	switch e.Kind {
	case Message:
		if c != nil {
			c.each(func(handler Handler) { handler.OnMessage(e.Text) })
		}
	case Subscribed:
		n.answered(request{channel: e.Channel})
		if c != nil && (c.state == asked || c.state == open) {
			n.subscribed(c)
		}
	case Unsubscribed:
		if !n.answered(request{channel: e.Channel, unsubscribe: true}) && c != nil {
			n.refused(c, errMoved)
		}
	case Refused:
		if len(n.unanswered) == 0 { // of a Ping, or of an Unsubscribe that was answered by its channel's move
			return nil
		}
		r := n.unanswered[0]
		n.answered(r)
		if c := n.channels[r.channel]; c != nil && c.state == asked && !r.unsubscribe {
			n.refused(c, e.Err)
		}
	}
	if len(n.unanswered) > 0 && time.Since(n.answeredAt) > n.hub.pingAfter+n.hub.pingTimeout {
		return ErrNoAnswer // the node sends something, but no answer
	}
	return nil
}

func (n *nodeConn) subscribed(c *channel) {
	c.become(open)
	c.err = nil
	c.backoff.Reset()
	if n.broken = false; n.subscribedAt.IsZero() {
		n.subscribedAt = time.Now()
	}
	c.each(func(handler Handler) { handler.OnOpen() })
}

// answered removes a request from those unanswered. It returns whether it was among them.
func (n *nodeConn) answered(r request) bool {
	i := slices.IndexFunc(n.unanswered, func(a request) bool { return a.channel == r.channel && a.unsubscribe == r.unsubscribe })
	if i < 0 {
		return false
	}
	n.answeredAt = time.Now()
	if i == 0 { // the usual case, also of thousands: they are answered in order
		n.unanswered = n.unanswered[1:]
	} else {
		n.unanswered = slices.Delete(n.unanswered, i, i+1)
	}
	return true
}
