package notify

import (
	"slices"
	"time"
)

// read handles what the node sends until the connection is lost.
func (n *nodeConn) read(conn Conn) error {
	for {
		event, err := conn.Receive(n.ctx)
		if err != nil {
			return err
		}
		n.handle(event)
	}
}

// handle applies an event.
func (n *nodeConn) handle(e Event) {
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	c := n.channels[e.Channel]
	switch e.Kind {
	case Message:
		if e.Channel == n.heartbeat.channel {
			n.receivedHeartbeat()
		} else if c != nil {
			c.each(func(handler Handler) { handler.OnMessage(e.Text) })
		}
	case Subscribed:
		n.answered(request{channel: e.Channel})
		if e.Channel == n.heartbeat.channel {
			n.heartbeat.subscribed = true
			notify(n.wake)
		} else if c != nil && (c.state == asked || c.state == open) {
			n.subscribed(c)
		}
	case Unsubscribed:
		if e.Channel == n.heartbeat.channel {
			n.heartbeat = heartbeat{backoff: n.heartbeat.backoff} // the next one uses another channel
			notify(n.wake)
		} else if !n.answered(request{channel: e.Channel, unsubscribe: true}) && c != nil {
			n.refused(c, errMoved)
		}
	case Refused:
		if len(n.unanswered) == 0 { // the refusal of an Unsubscribe whose channel has moved meanwhile
			return
		}
		r := n.unanswered[0]
		n.answered(r)
		if r.channel == n.heartbeat.channel {
			n.heartbeat.channel = ""
			n.refuseHeartbeat(e.Err)
			notify(n.wake)
		} else if c := n.channels[r.channel]; c != nil && c.state == asked && !r.unsubscribe {
			n.refused(c, e.Err)
		}
	}
}

func (n *nodeConn) subscribed(c *channel) {
	c.become(open)
	c.err = nil
	c.backoff.Reset()
	if !n.worksSince.IsZero() {
		c.each(Handler.OnOpen)
	}
	if n.heartbeat.channel == "" {
		notify(n.wake) // to subscribe to a heartbeat channel
	}
}

// answered removes a request from the unanswered ones. It reports whether it was among them.
func (n *nodeConn) answered(r request) bool {
	i := slices.IndexFunc(n.unanswered, func(a request) bool { return a.channel == r.channel && a.unsubscribe == r.unsubscribe })
	if i < 0 {
		return false
	}
	n.answeredAt = time.Now()
	if i == 0 { // the usual case, because requests are answered in order
		n.unanswered = n.unanswered[1:]
	} else {
		n.unanswered = slices.Delete(n.unanswered, i, i+1)
	}
	return true
}
