package delivery

import (
	"sync"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// ear turns the notifications of a partition into hints. It blocks nobody: all subscriptions
// of a client share a connection.
type ear struct {
	partition *partition
	reports   *sync.WaitGroup

	mu        sync.Mutex
	failure   error // guarded by mu; to be reported
	works     bool  // guarded by mu; to be reported, after failure
	reporting bool  // guarded by mu; report runs
}

func newEar(p *partition, reports *sync.WaitGroup) *ear {
	return &ear{partition: p, reports: reports}
}

// Heard implements queue.Ear.
func (e *ear) Heard(hint queue.Hint) {
	p := e.partition
	switch {
	case hint.Opened:
		e.note(nil)
		p.hints.hearing(true)
		tell(p.listening)
		tell(p.subscription.grown) // a notification may have come before
	case hint.Grown:
		tell(p.subscription.grown)
		return
	case hint.Paused:
		tell(p.subscription.paused)
		return
	}
	hint.In = p.atMostPoll(hint.In)
	p.hints.hear(hint)
}

// Failed implements queue.Ear.
func (e *ear) Failed(err error) {
	e.note(err)
	e.partition.hints.hearing(false)
}

// note lets report run, which may take long.
func (e *ear) note(failure error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.works = failure == nil; !e.works {
		e.failure = failure
	}
	if !e.reporting {
		e.reporting = true
		e.reports.Go(e.report)
	}
}

// report tells the observer what it has not been told yet.
func (e *ear) report() {
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
