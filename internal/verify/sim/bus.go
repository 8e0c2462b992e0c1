package sim

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/sim/store"
)

// listener is a connection that hears the notifications of a partition.
type listener struct {
	link     *link
	consumer string
	group    string
	rng      *rand.Rand // guarded by World.mu
	signal   chan struct{}
	closed   chan struct{}
	once     sync.Once
	broken   chan struct{}
	opened   bool // owned by next; it has returned the first notification

	// guarded by World.mu
	heard []heard
	last  time.Time // when the last notification arrives
	cut   bool
	dead  bool // it has lost a notification: no later one arrives, and no answer to a ping, as on a TCP connection
}

// heard is a notification on its way.
type heard struct {
	at     time.Time
	notice store.Notice
}

// listen opens a connection. The first notification on it says that it is open.
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
	li.deliver(store.Notice{}, time.Now())
	return li
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
	if !n.Looked && n.Group == "" {
		for _, g := range w.groups {
			g.usage.woken++
		}
	}
	for _, c := range w.consumers {
		if l := c.links[partition]; l != nil && (l.listener == nil || l.listener.concerns(n)) {
			l.hear(n, false)
		}
	}
}

// hear sends a notification to a consumer. The caller holds World.mu.
func (l *link) hear(n store.Notice, lie bool) {
	now := time.Now()
	if lie {
		l.mislead(now)
	}
	if l.listener == nil {
		l.mislead(now)
		return
	}
	lost := now.Before(l.w.silentUntil[l.process]) || now.Before(l.w.storms[l.process]) && chance(l.listener.rng, 0.3)
	if l.listener.dead = l.listener.dead || lost; l.listener.dead {
		l.mislead(now)
		return
	}
	if !n.Looked && !n.Paused && !n.Grown {
		l.consumer.woken++
	}
	l.listener.deliver(n, now)
}

func (l *link) mislead(now time.Time) { l.misled, l.informed = now, false }

func (li *listener) deliver(n store.Notice, now time.Time) {
	li.last = latest(li.last, now.Add(between(li.rng, 0, li.link.w.plan.Faults.Latency)))
	li.heard = append(li.heard, heard{li.last, n})
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
	case n.Looked:
		return n.Group == li.group && n.Consumer != li.consumer
	default:
		return n.Group == "" || n.Group == li.group
	}
}

// next waits for a notification, unless there is silence for a while.
func (li *listener) next(ctx context.Context, patience time.Duration) (n store.Notice, silent bool, err error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		if h, any := li.first(); any {
			if err := li.link.process.rest(ctx, time.Until(h.at), li.closed); err != nil {
				return store.Notice{}, false, err
			}
			select {
			case <-li.closed:
				return store.Notice{}, false, errReset
			default:
				li.opened = true
				return h.notice, false, nil
			}
		}
		select {
		case <-li.signal:
		case <-timer.C:
			return store.Notice{}, true, li.link.process.rest(ctx, 0, nil)
		case <-li.broken:
			return store.Notice{}, false, errReset
		case <-li.closed:
			return store.Notice{}, false, errReset
		case <-li.link.process.dead:
			return store.Notice{}, false, errKilled
		case <-li.link.w.over:
			return store.Notice{}, false, errOver
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
