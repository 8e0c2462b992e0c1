package delivery

import (
	"sync"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// notifications turns the notifications of a partition into hints. Its methods do not block,
// because all subscriptions of a client share a connection.
type notifications struct {
	partition *partition

	mu        sync.Mutex
	failure   error // guarded by mu; to be reported
	works     bool  // guarded by mu; to be reported, after failure
	reporting bool  // guarded by mu; report runs
}

// OnHint implements queue.HintHandler.
func (n *notifications) OnHint(hint queue.Hint) {
	p := n.partition
	switch {
	case hint.Opened:
		n.queueReport(nil)
		p.hints.listening(true)
		signal(p.listening)
		// Notifications may be lost: the claim that follows shows new partitions and pauses.
	case hint.ForGroup:
		signal(p.groupNotified)
		p.leases.heartbeatSoon()
	case hint.Grown:
		p.topology.noteGrown()
		return
	case hint.Paused:
		p.topology.notePaused()
		return
	}
	p.hints.notified(hint)
}

// OnError implements queue.HintHandler.
func (n *notifications) OnError(err error) {
	n.queueReport(err)
	n.partition.hints.listening(false)
}

// queueReport starts report unless it runs; the observer may take long.
func (n *notifications) queueReport(failure error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.works = failure == nil; !n.works {
		n.failure = failure
	}
	if !n.reporting {
		n.reporting = true
		n.partition.running.keepers.Go(n.report)
	}
}

// report reports what the observer does not know yet.
func (n *notifications) report() {
	for {
		n.mu.Lock()
		failure, works := n.failure, n.works
		n.failure, n.works = nil, false
		n.reporting = failure != nil || works
		n.mu.Unlock()
		if failure == nil && !works {
			return
		}
		if failure != nil {
			n.partition.report.failed(observe.Listening, failure)
		}
		if works {
			n.partition.report.worked(observe.Listening)
		}
	}
}
