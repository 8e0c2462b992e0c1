package publish

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxFailing bounds how many destinations an Outage remembers.
	maxFailing = 1000

	// staleAfter is how long a destination counts as failing after it has failed for the
	// last time: nobody may publish to it any more.
	staleAfter = time.Minute
)

// Outage tells when publishing begins to fail and when it works again, each once, how
// many destinations and calls there may be. Only errors that may pass count. It is safe
// for concurrent use; the functions are called one at a time.
type Outage struct {
	began func(to Destination, err error)
	ended func(after time.Duration)

	failing atomic.Int64 // how many destinations there are in last

	mu    sync.Mutex
	since time.Time                 // guarded by mu
	last  map[Destination]time.Time // guarded by mu; when each failed for the last time
}

// NewOutage returns an Outage that calls began and ended.
func NewOutage(began func(to Destination, err error), ended func(after time.Duration)) *Outage {
	return &Outage{began: began, ended: ended, last: map[Destination]time.Time{}}
}

// Failed notes that a call to a destination has failed and is made again.
func (o *Outage) Failed(to Destination, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if len(o.last) == 0 {
		o.since = now
		o.began(to, err)
	}
	if _, known := o.last[to]; known || len(o.last) < maxFailing {
		o.last[to] = now
	}
	o.failing.Store(int64(len(o.last)))
}

// Worked notes that a call to a destination has succeeded. That others work does not
// end an outage, since they may be on other servers.
func (o *Outage) Worked(to Destination) {
	if o.failing.Load() == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.last) == 0 {
		return
	}
	delete(o.last, to)
	for other, failed := range o.last {
		if time.Since(failed) > staleAfter {
			delete(o.last, other)
		}
	}
	o.failing.Store(int64(len(o.last)))
	if len(o.last) == 0 {
		o.ended(time.Since(o.since))
	}
}
