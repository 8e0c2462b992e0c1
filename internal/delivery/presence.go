package delivery

import (
	"cmp"
	"slices"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// Extended is a delivery that a handler has had for longer than a heartbeat.
type Extended struct {
	ID    string
	Fence int64 // names the delivery
	Times int   // how often its lease was extended, with the heartbeat that says so
}

// presence is what the consumer says of itself. Between two heartbeats it stays the same, so
// a claim costs nothing more.
func (l *leases) presence() queue.Presence {
	l.mu.Lock()
	defer l.mu.Unlock()
	return queue.Presence{Alive: l.config.alive(), About: l.about}
}

// describe renews what the consumer says of itself, before a heartbeat. An idle consumer has
// nothing new to say.
func (l *leases) describe() {
	handled := l.handled()
	if !l.says || len(handled) == 0 && l.about != "" && !l.names {
		return
	}
	about := l.config.About(handled)
	l.names = len(handled) > 0
	l.mu.Lock()
	defer l.mu.Unlock()
	l.about = about
}

// handled are the messages that handlers have, those first that came first.
func (l *leases) handled() []Extended {
	l.mu.Lock()
	defer l.mu.Unlock()
	var items []*item
	for _, it := range l.held {
		if it.handedOut.Load() {
			items = append(items, it)
		}
	}
	slices.SortFunc(items, func(a, b *item) int { return cmp.Or(a.ArrivedAt.Compare(b.ArrivedAt), cmp.Compare(a.ID, b.ID)) })
	list := make([]Extended, len(items))
	for i, it := range items {
		list[i] = Extended{ID: it.ID, Fence: it.Fence, Times: it.extended + 1}
	}
	return list
}
