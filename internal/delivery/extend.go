package delivery

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// maintain gives up leases that are no longer certain, and extends the others if it is time. It returns when to check again.
func (l *leases) maintain(ctx context.Context, running *sync.WaitGroup) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !now.Before(l.checkAt) {
		if lost := l.dropUncertain(now); len(lost) > 0 {
			running.Go(func() { l.report.leasesLost(lost) })
		}
	}
	at := l.extendAt
	if heartbeatAt := l.notifiedAt.Add(heartbeatDelay); l.heartbeatOwed() && heartbeatAt.Before(at) {
		at = heartbeatAt
	}
	switch {
	case l.extendAt.IsZero():
		return l.checkAt
	case !now.Before(at):
		l.extendAt = time.Time{}
		running.Go(func() { l.extend(ctx) })
		return l.checkAt
	case at.Before(l.checkAt):
		return at
	}
	return l.checkAt
}

// dropUncertain gives up the leases that are not certain now, without a call to Redis. The caller
// holds mu.
func (l *leases) dropUncertain(now time.Time) (lost []*item) {
	l.checkAt = now.Add(idle)
	for _, it := range l.held {
		switch {
		case it.doubted: // the answer to its settlement decides
		case !now.Before(it.trustedUntil):
			l.lose(it)
			lost = append(lost, it)
		case it.trustedUntil.Before(l.checkAt):
			l.checkAt = it.trustedUntil
		}
	}
	return lost
}

// extend extends all leases. It does so every third of their duration, sooner after an error,
// and later while there are none. Only one runs at a time.
func (l *leases) extend(ctx context.Context) {
	if l.failed && !l.spacing.Wait(ctx) {
		return
	}
	err := l.extendAll(ctx)
	if l.failed = err != nil && ctx.Err() == nil; l.failed {
		l.report.failed(observe.Extending, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	next := l.config.Lease / 3
	switch {
	case l.failed:
		next = min(next, max(l.config.Lease/12, minBackoff))
	case len(l.held) > 0 || l.infoHasMessages: // info must not outlive the messages that it names
	case l.reportsAlive: // until the next heartbeat
		next = max(next, l.heartbeatInterval()-time.Since(l.aliveSentAt))
	default:
		next = idle
	}
	l.extendAt = time.Now().Add(next)
	if l.heartbeatOwed() { // the heartbeat has failed
		l.notifiedAt = time.Now()
	}
	l.alarm.ring()
}

func (l *leases) extendAll(ctx context.Context) error {
	all := l.all()
	l.renewInfo()
	if len(all) == 0 {
		l.report.stopped(observe.Extending)
	}
	heartbeat := queue.Heartbeat{Consumer: l.config.Consumer, Lease: l.config.Lease, Presence: l.presence()}
	if len(all) == 0 && l.heartbeatOverdue() {
		sent := time.Now()
		if _, err := l.group.Extend(ctx, heartbeat, nil); err == nil {
			l.noteAlive(sent)
		}
		return nil // nothing is lost by an error, and claims report the same
	}
	_, err := inChunks(all, queue.MaxMessages, func(held []queue.Held) error {
		sent := time.Now()
		stale, err := l.group.Extend(ctx, heartbeat, held)
		if err == nil {
			l.extended(held, stale, sent)
			l.noteAlive(sent)
			l.report.worked(observe.Extending)
		}
		return err
	})
	return err
}

// noteAlive records that a call sent at that time has shown Redis that the consumer is alive.
func (l *leases) noteAlive(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.aliveSentAt = sent
}

// heartbeatOverdue reports whether a heartbeat is due although nothing is held. Claims serve as
// heartbeats at least once in a quiet interval, unless all workers are busy with messages of other
// partitions.
func (l *leases) heartbeatOverdue() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reportsAlive && !l.left && (l.heartbeatOwed() || time.Since(l.aliveSentAt) > l.heartbeatInterval())
}

// leave ends the heartbeats. It must be called before the consumer leaves the group.
func (l *leases) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left = true
}

// heartbeatInterval is the longest time between two signs that the consumer is alive.
func (l *leases) heartbeatInterval() time.Duration {
	return max(l.config.alive()/3, l.config.quietInterval())
}

// heartbeatSoon makes the consumer send a heartbeat within heartbeatDelay. Its group was notified, so the group may be about
// to end. The claim that follows the notification is a heartbeat, unless all workers are busy with messages of other partitions.
func (l *leases) heartbeatSoon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reportsAlive && !l.heartbeatOwed() {
		l.notifiedAt = time.Now()
		l.alarm.ring()
	}
}

// heartbeatOwed reports whether the consumer has sent no heartbeat since its group was notified. The caller holds mu.
func (l *leases) heartbeatOwed() bool { return l.notifiedAt.After(l.aliveSentAt) }

func (l *leases) all() []queue.Held {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]queue.Held, 0, len(l.held))
	for _, it := range l.held {
		list = append(list, queue.Held{Delivery: it.delivery(), HandedOut: it.handedOut.Load()})
	}
	return list
}

// extended applies the answer to a call. sent is when the call was sent.
func (l *leases) extended(held []queue.Held, stale []string, sent time.Time) {
	var lost []*item
	defer func() { l.report.leasesLost(lost) }()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range held {
		it := l.held[d.ID]
		switch {
		case it == nil || it.Receipt != d.Receipt:
		case slices.Contains(stale, d.ID) && it.sent > 0:
			it.doubted = true
		case slices.Contains(stale, d.ID):
			l.lose(it)
			lost = append(lost, it)
		default:
			it.trustedUntil = l.until(sent, l.config.Lease)
			it.extended++
		}
	}
}

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
		list[i] = Extended{ID: it.ID, Token: it.Token, Times: it.extended + 1}
	}
	return list
}
