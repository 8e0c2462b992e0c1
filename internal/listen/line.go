package listen

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

	// steady is for how long a line has to hear a channel until it counts as one that works: if
	// it is lost after that, it is opened again at once. Before, the node may close each.
	steady = 2 * time.Second

	// idle is when to look again while no channel is refused: whatever happens wakes the line.
	idle = time.Hour
)

// errMoved says that a channel has moved to another node.
var errMoved = errors.New("the channel has moved to another node")

// line is a connection to a node, opened again whenever it is lost.
type line struct {
	// immutable
	hub    *Hub
	node   Node // nil: for channels whose node is not known yet
	ctx    context.Context
	cancel context.CancelFunc
	wake   chan struct{} // signalled when there may be something to ask
	retry  chan struct{} // signalled when an attempt will probably succeed
	ended  chan struct{} // closed when its goroutines have ended

	// guarded by Hub.mu
	channels map[string]*channel
	leaving  []string  // channels that nobody listens to any more
	asked    []request // what the node has not answered yet, in order
	since    time.Time // since when it owes the first of these answers
	joins    time.Time // when it joined its first channel since it was opened; zero if it has not
	broken   bool      // its last attempt has failed
	astray   bool      // some channel is not where it was
	closing  bool      // it takes no more channels
}

// request asks a node for a channel, or not to hear it any more.
type request struct {
	channel string
	leave   bool
}

func newLine(h *Hub, node Node) *line {
	l := &line{
		hub: h, node: node, channels: map[string]*channel{},
		wake: make(chan struct{}, 1), retry: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// keep opens the connection again and again, until the line has no channels: at once if it has
// worked, and then less and less.
func (l *line) keep() {
	defer l.hub.remove(l)
	defer l.cancel()
	pause := backoff.Backoff{Min: minPause, Max: maxPause}
	for !l.empty() {
		err := l.locate(l.all())
		if err == nil && l.node != nil {
			err = l.talk()
		}
		if err == nil {
			continue
		}
		worked := l.fail(err)
		l.hub.network.Look(l.ctx)
		if worked {
			pause.Reset()
			continue
		}
		pause.WaitUnless(l.ctx, l.retry)
	}
}

// empty reports whether the line has no channels. If so, it gets no more.
func (l *line) empty() bool {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	l.closing = l.closing || len(l.channels) == 0
	return l.closing
}

func (l *line) all() []*channel {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	return slices.Collect(maps.Values(l.channels))
}

// locate moves channels to the lines of the nodes that have them now.
func (l *line) locate(list []*channel) error {
	for _, c := range list {
		node, err := l.hub.network.Node(l.ctx, c.name)
		if err != nil {
			return err
		}
		l.move(c, node)
	}
	return nil
}

func (l *line) move(c *channel, node Node) {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	switch {
	case l.channels[c.name] != c: // nobody listens any more
	case node == l.node:
		c.stage = wanted
	default:
		delete(l.channels, c.name)
		l.hub.put(c, node)
	}
}

// drop ends a channel that nobody listens to any more. The caller holds Hub.mu.
func (l *line) drop(c *channel) {
	delete(l.channels, c.name)
	if len(l.channels) == 0 {
		l.end()
		return
	}
	if c.stage == asked || c.stage == open {
		l.leaving = append(l.leaving, c.name)
		tell(l.wake)
	}
}

// end ends a line without channels. The caller holds Hub.mu.
func (l *line) end() {
	l.closing = true
	l.cancel()
}

// fail tells everybody that the line is broken. It returns whether it had worked for a while.
func (l *line) fail(err error) (worked bool) {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	select {
	case <-l.retry: // a signal from before this failure
	default:
	}
	l.broken = true
	for _, c := range l.channels {
		c.stage, c.err = wanted, err
		c.tell(func(e Ear) { e.Failed(err) })
	}
	l.asked, l.leaving = nil, nil
	worked = !l.joins.IsZero() && time.Since(l.joins) >= steady
	l.joins = time.Time{}
	return worked
}

// talk opens a connection and asks for channels until it is lost, or until none is left.
func (l *line) talk() error {
	conn := l.node.Connect()
	again, err := l.ask(conn)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer conn.Close() // ends read
	if err != nil || l.empty() {
		return err
	}
	lost := make(chan error, 1)
	reading.Go(func() { lost <- l.read(conn) })
	for !l.empty() {
		timer := time.NewTimer(again)
		select {
		case <-l.wake:
		case <-timer.C:
		case err = <-lost:
		case <-l.ctx.Done():
		}
		timer.Stop()
		if err == nil {
			again, err = l.ask(conn)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ask sends what is to be asked, and returns when to look again.
func (l *line) ask(conn Conn) (again time.Duration, err error) {
	due, astray := l.due(time.Now())
	if astray {
		l.hub.network.Look(l.ctx)
	}
	for _, c := range due {
		if err := l.locate([]*channel{c}); err != nil {
			l.refuse(c, err)
		}
	}
	requests, again := l.requests(time.Now())
	for _, r := range requests {
		if r.leave {
			err = conn.Leave(l.ctx, r.channel)
		} else {
			err = conn.Join(l.ctx, r.channel)
		}
		if err != nil {
			return 0, err
		}
	}
	return again, nil
}

// due are the channels that were refused and are to be asked for again. It returns also
// whether channels have been refused since the last time.
func (l *line) due(now time.Time) (list []*channel, astray bool) {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	for _, c := range l.channels {
		if c.stage == refused && !now.Before(c.again) {
			list = append(list, c)
		}
	}
	astray, l.astray = l.astray, false
	return list, astray
}

// requests are what to ask now. They count as asked, in their order.
func (l *line) requests(now time.Time) (list []request, again time.Duration) {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	again = idle
	for _, name := range l.leaving { // first, since somebody may listen to it again
		list = append(list, request{channel: name, leave: true})
	}
	l.leaving = nil
	for _, c := range l.channels {
		switch c.stage {
		case wanted:
			c.stage = asked
			list = append(list, request{channel: c.name})
		case refused:
			again = min(again, c.again.Sub(now))
		}
	}
	if len(l.asked) == 0 {
		l.since = now
	}
	l.asked = append(l.asked, list...)
	return list, again
}

// refuse lets a channel wait until it is asked for again.
func (l *line) refuse(c *channel, err error) {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	l.refused(c, err)
}

// refused is refuse for a caller that holds Hub.mu.
func (l *line) refused(c *channel, err error) {
	if l.channels[c.name] != c {
		return
	}
	c.stage, c.err, c.again = refused, err, time.Now().Add(c.pause.Next())
	l.astray = true
	c.tell(func(e Ear) { e.Failed(err) })
	tell(l.wake)
}
