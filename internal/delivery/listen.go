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
func (e *notifications) OnHint(hint queue.Hint) {
	p := e.partition
	switch {
	case hint.Opened:
		e.queueReport(nil)
		p.hints.listening(true)
		signal(p.listening)
		// Notifications may be lost: the claim that follows shows new partitions and pauses.
	case hint.Alone:
		signal(p.called)
		p.leases.answerSoon()
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
func (e *notifications) OnError(err error) {
	e.queueReport(err)
	e.partition.hints.listening(false)
}

// queueReport starts report unless it runs; the observer may take long.
func (e *notifications) queueReport(failure error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.works = failure == nil; !e.works {
		e.failure = failure
	}
	if !e.reporting {
		e.reporting = true
		e.partition.running.keepers.Go(e.report)
	}
}

// report reports what the observer does not know yet.
func (e *notifications) report() {
	for {
		e.mu.Lock()
		failure, works := e.failure, e.works
		e.failure, e.works = nil, false
		e.reporting = failure != nil || works
		e.mu.Unlock()
		if failure == nil && !works {
			return
		}
		if failure != nil {
			e.partition.report.failed(observe.Listening, failure)
		}
		if works {
			e.partition.report.worked(observe.Listening)
		}
	}
}
