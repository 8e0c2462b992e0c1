package notify

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
)

const (
	// Interval is how often a heartbeat is published for each connection by default.
	Interval = 2 * time.Second

	// Timeout is how long a heartbeat may take to be received, or any other request to be answered. So a connection that fails
	// silently is noticed within the interval plus Timeout.
	Timeout = 1500 * time.Millisecond

	// publishAgain is after how long a heartbeat is published again if its Publish has failed.
	publishAgain = 200 * time.Millisecond
)

// ErrNoAnswer means that a connection is open, but does not receive what is published: the node does not answer, or
// notifications are published on another node.
var ErrNoAnswer = errors.New("the connection for notifications does not receive them")

// heartbeat checks whether a connection receives what is published. Only this connection subscribes to its channel. It is
// guarded by Hub.mu.
type heartbeat struct {
	channel    string          // "": none yet, or it was refused
	subscribed bool            // the node has accepted the channel
	next       time.Time       // when to publish next, or to subscribe again after a refusal
	deadline   time.Time       // when the heartbeat must have been received; zero: none is expected
	err        error           // of the last Publish
	backoff    backoff.Backoff // between refusals
}

// newChannel returns a heartbeat channel on the node of a subscribed channel; "" if it is too early. The caller holds Hub.mu.
func (n *nodeConn) newChannel(now time.Time) string {
	if n.heartbeat.channel != "" || now.Before(n.heartbeat.next) {
		return ""
	}
	for _, c := range n.channels {
		if c.state == open {
			n.heartbeat.channel = c.name + ":" + strconv.FormatUint(rand.Uint64(), 36)
			break
		}
	}
	return n.heartbeat.channel
}

// beat publishes a heartbeat if it is due. It returns when to call it again, and an error if the connection is lost.
func (n *nodeConn) beat() (again time.Duration, err error) {
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	b, now := &n.heartbeat, time.Now()
	again = recheck
	if len(n.unanswered) > 0 {
		if again = n.hub.timeout - now.Sub(n.answeredAt); again <= 0 {
			return 0, ErrNoAnswer
		}
	}
	if !b.deadline.IsZero() && !now.Before(b.deadline) {
		return 0, cmp.Or(b.err, ErrNoAnswer)
	}
	if b.subscribed && !now.Before(b.next) {
		b.next = now.Add(n.hub.interval)
		if b.deadline.IsZero() {
			b.deadline = now.Add(n.hub.timeout)
		}
		channel := b.channel
		n.publishing.Go(func() { n.publish(channel) })
	}
	for _, at := range []time.Time{b.next, b.deadline} {
		if !at.IsZero() {
			again = min(again, max(0, at.Sub(now)))
		}
	}
	return again, nil
}

// publish publishes a heartbeat.
func (n *nodeConn) publish(channel string) {
	refused, err := n.hub.network.Publish(n.ctx, channel, n.hub.timeout)
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	b := &n.heartbeat
	switch {
	case err == nil || channel != b.channel: // b.channel is that of a newer connection
		return
	case refused:
		n.refuseHeartbeat(err)
	case !b.deadline.IsZero():
		b.err, b.next = err, time.Now().Add(publishAgain)
	}
	notify(n.wake)
}

// receivedHeartbeat records that the connection works. The caller holds Hub.mu.
func (n *nodeConn) receivedHeartbeat() {
	b := &n.heartbeat
	b.deadline, b.err = time.Time{}, nil
	b.backoff.Reset()
	if n.worksSince.IsZero() {
		n.worksSince, n.broken = time.Now(), false
		n.eachOpen(nil, Handler.OnOpen)
	}
}

// refuseHeartbeat makes all subscriptions count as not working, because they can no longer be checked. The caller holds Hub.mu.
func (n *nodeConn) refuseHeartbeat(err error) {
	b := &n.heartbeat
	b.deadline, b.next = time.Time{}, time.Now().Add(b.backoff.Next())
	n.worksSince = time.Time{}
	n.eachOpen(err, func(h Handler) { h.OnError(err) })
}

// eachOpen calls the Handlers of all subscribed channels. The caller holds Hub.mu.
func (n *nodeConn) eachOpen(err error, call func(Handler)) {
	for _, c := range n.channels {
		if c.state == open {
			c.err = err
			c.each(call)
		}
	}
}
