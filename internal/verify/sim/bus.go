package sim

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/sim/store"
)

// listener is a connection that receives the notifications of a partition.
type listener struct {
	link     *link
	consumer string
	group    string
	rng      *rand.Rand // guarded by World.mu
	signal   chan struct{}
	closed   chan struct{}
	once     sync.Once
	broken   chan struct{}

	// guarded by World.mu
	heard []heard
	last  time.Time // when the last notification arrives
	cut   bool
	dead  bool // it has lost a notification: as on a TCP connection, no later one arrives, and no heartbeat
}

// heard is an event on its way: a notification, a heartbeat or the answer to a request.
type heard struct {
	at                    time.Time
	notice                store.Notice
	heartbeat, subscribed string // the channel
}

// listen opens a connection, which receives all notifications from now on.
func (l *link) listen(group, consumer string) *listener {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	li := &listener{
		link: l, group: group, consumer: consumer,
		rng:    rng(l.w.seed, l.process.name+"/listener/"+string(rune('a'+l.partition))),
		signal: make(chan struct{}, 1), closed: make(chan struct{}), broken: make(chan struct{}),
	}
	if time.Now().Before(l.w.silentUntil[l.process]) || time.Now().Before(l.w.storms[l.process]) {
		li.snap()
		return li
	}
	l.listener = li
	return li
}

// subscribe answers a request for a channel.
func (li *listener) subscribe(channel string) {
	li.link.w.mu.Lock()
	defer li.link.w.mu.Unlock()
	if !li.dead && !li.cut {
		li.deliver(heard{subscribed: channel})
	}
}

// snap breaks the connection. The caller holds World.mu.
func (li *listener) snap() {
	if !li.cut {
		li.cut = true
		close(li.broken)
	}
	if li.link.listener == li {
		li.link.listener = nil
	}
}

// notify sends a notification to all listeners. The caller holds mu.
func (w *World) notify(partition int, n store.Notice) {
	if !n.Claimed && n.Group == "" {
		for _, g := range w.groups {
			g.usage.woken++
		}
	}
	for _, c := range w.consumers {
		if l := c.links[partition]; l != nil && (l.listener == nil || l.listener.concerns(n)) {
			l.send(n, false)
		}
	}
}

// send sends a notification to a consumer. The caller holds World.mu.
func (l *link) send(n store.Notice, lie bool) {
	now := time.Now()
	if lie {
		l.mislead(now)
	}
	if l.listener == nil {
		l.mislead(now)
		return
	}
	if l.listener.loses(now) {
		l.mislead(now)
		return
	}
	if !n.Claimed && !n.Paused && !n.Grown {
		l.consumer.woken++
	}
	l.listener.deliver(heard{notice: n})
}

// sendHeartbeat sends a heartbeat to a consumer.
func (l *link) sendHeartbeat(channel string) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if l.listener != nil && !l.listener.loses(time.Now()) {
		l.listener.deliver(heard{heartbeat: channel})
	}
}

// loses reports whether a notification, and with it all later ones, is lost. The caller holds World.mu.
func (li *listener) loses(now time.Time) bool {
	w, process := li.link.w, li.link.process
	li.dead = li.dead || now.Before(w.silentUntil[process]) || now.Before(w.storms[process]) && chance(li.rng, 0.3)
	return li.dead
}

func (l *link) mislead(now time.Time) { l.misled, l.informed = now, false }

// deliver sends an event on its way. The caller holds World.mu.
func (li *listener) deliver(h heard) {
	li.last = latest(li.last, time.Now().Add(between(li.rng, 0, li.link.w.plan.Faults.Latency)))
	h.at = li.last
	li.heard = append(li.heard, h)
	select {
	case li.signal <- struct{}{}:
	default:
	}
}

// concerns reports whether a notification is for this consumer. See queue.Listener.
func (li *listener) concerns(n store.Notice) bool {
	switch {
	case n.Grown:
		return true
	case n.Claimed:
		return n.Group == li.group && n.Consumer != li.consumer
	default:
		return n.Group == "" || n.Group == li.group
	}
}

// next waits for the next event.
func (li *listener) next(ctx context.Context) (heard, error) {
	for {
		if h, any := li.first(); any {
			if err := li.link.process.rest(ctx, time.Until(h.at), li.closed); err != nil {
				return heard{}, err
			}
			select {
			case <-li.closed:
				return heard{}, errReset
			default:
				return h, nil
			}
		}
		select {
		case <-li.signal:
		case <-li.broken:
			return heard{}, errReset
		case <-li.closed:
			return heard{}, errReset
		case <-li.link.process.dead:
			return heard{}, errKilled
		case <-li.link.w.over:
			return heard{}, errOver
		}
	}
}

func (li *listener) first() (heard, bool) {
	li.link.w.mu.Lock()
	defer li.link.w.mu.Unlock()
	if len(li.heard) == 0 {
		return heard{}, false
	}
	h := li.heard[0]
	li.heard = li.heard[1:]
	return h, true
}

func (li *listener) close() {
	li.once.Do(func() { close(li.closed) })
	li.link.w.mu.Lock()
	defer li.link.w.mu.Unlock()
	li.snap()
}
