package listen

import (
	"errors"
	"slices"
	"time"
)

// ErrDeaf says that a connection was lost without a sign: a router or load balancer on the
// way may have forgotten it.
var ErrDeaf = errors.New("the connection for notifications does not answer")

// read takes what the node sends until the connection is lost.
func (l *line) read(conn Conn) error {
	l.hub.mu.Lock()
	l.since = time.Now() // opening the connection took its time
	l.hub.mu.Unlock()
	for {
		event, err := l.receive(conn)
		if err == nil {
			err = l.take(event)
		}
		if err != nil {
			return err
		}
	}
}

// receive waits for anything from the node, and pings it after a while.
func (l *line) receive(conn Conn) (Event, error) {
	event, err := conn.Receive(l.ctx, l.hub.silence)
	if err != nil || event.Kind != Silence {
		return event, err
	}
	if err := conn.Ping(l.ctx); err != nil {
		return Event{}, err
	}
	event, err = conn.Receive(l.ctx, l.hub.patience)
	if err == nil && event.Kind == Silence {
		err = ErrDeaf
	}
	return event, err
}

// take applies an event. An error says that the connection is of no use any more.
func (l *line) take(e Event) error {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	c := l.channels[e.Channel]
	switch e.Kind {
	case Message:
		if c != nil {
			c.tell(func(ear Ear) { ear.Heard(e.Text) })
		}
	case Joined:
		l.answered(request{channel: e.Channel})
		if c != nil && (c.stage == asked || c.stage == open) {
			l.joined(c)
		}
	case Left:
		if !l.answered(request{channel: e.Channel, leave: true}) && c != nil {
			l.refused(c, errMoved)
		}
	case Refused:
		if len(l.asked) == 0 { // a Ping, or a Leave that has counted as answered when its channel moved
			return nil
		}
		r := l.asked[0]
		l.answered(r)
		if c := l.channels[r.channel]; c != nil && c.stage == asked && !r.leave {
			l.refused(c, e.Err)
		}
	}
	if len(l.asked) > 0 && time.Since(l.since) > l.hub.silence+l.hub.patience {
		return ErrDeaf // it answers, but not to this
	}
	return nil
}

func (l *line) joined(c *channel) {
	c.stage, c.err = open, nil
	c.pause.Reset()
	if l.broken = false; l.joins.IsZero() {
		l.joins = time.Now()
	}
	c.tell(func(ear Ear) { ear.Opened() })
}

// answered notes the answer to a request. It returns whether there was one.
func (l *line) answered(r request) bool {
	i := slices.IndexFunc(l.asked, func(a request) bool { return a.channel == r.channel && a.leave == r.leave })
	if i >= 0 {
		l.since = time.Now()
		l.asked = slices.Delete(l.asked, i, i+1)
	}
	return i >= 0
}
