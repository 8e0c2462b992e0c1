package delivery

import (
	"cmp"
	"slices"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// presence is the consumer's heartbeat payload. It stays the same between two heartbeats, so a claim
// costs nothing more.
func (l *leases) presence() queue.Presence {
	l.mu.Lock()
	defer l.mu.Unlock()
	return queue.Presence{Alive: l.config.alive(), Info: l.info}
}

// renewInfo renews the consumer info before a heartbeat. That of an idle consumer does not change.
func (l *leases) renewInfo() {
	handled := l.handled()
	if !l.reportsAlive || len(handled) == 0 && l.info != "" && !l.infoHasMessages {
		return
	}
	info := l.config.ConsumerInfo(handled)
	l.infoHasMessages = len(handled) > 0
	l.mu.Lock()
	defer l.mu.Unlock()
	l.info = info
}

// handled returns the messages that handlers have, in the order of arrival.
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
