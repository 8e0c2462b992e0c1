package publish

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/redisdelay/watermill-redisdelay/observe"
)

const (
	// maxFailing is how many destinations an outage remembers.
	maxFailing = 1000

	// staleAfter is how long a destination counts as failing after its last failure:
	// perhaps nothing is published to it any more.
	staleAfter = time.Minute

	// wholeTopic is the partition number of calls for a topic as a whole.
	wholeTopic = -1
)

// outage reports each temporary failure, and that publishing works again once no
// destination fails any more. It is safe for concurrent use. It holds no lock while it
// reports, so a slow observer holds up only the caller that reports to it; several may
// report at once.
type outage struct {
	observer observe.Observer

	failing atomic.Int64 // len(last)

	mu    sync.Mutex
	since time.Time                 // guarded by mu
	last  map[destination]time.Time // guarded by mu; the last failure of each
}

func newOutage(observer observe.Observer) *outage {
	return &outage{observer: observer, last: map[destination]time.Time{}}
}

// failed records that a call to a destination has failed and is made again.
func (o *outage) failed(to destination, err error) {
	o.begin(to)
	if o.observer.Failing != nil {
		o.observer.Failing(observe.Failing{Place: to.place(), What: observe.Publishing, Err: err})
	}
}

func (o *outage) begin(to destination) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if len(o.last) == 0 {
		o.since = now
	}
	if _, known := o.last[to]; known || len(o.last) < maxFailing {
		o.last[to] = now
	}
	o.failing.Store(int64(len(o.last)))
}

// worked records that a call to a destination has succeeded. That does not end the outage
// of other destinations, which may be on other servers.
func (o *outage) worked(to destination) {
	if o.failing.Load() == 0 {
		return
	}
	if after, ended := o.end(to); ended && o.observer.Recovered != nil {
		o.observer.Recovered(observe.Recovered{Place: to.place(), What: observe.Publishing, After: after})
	}
}

// end returns whether the outage ends with a destination that works, and how long it was.
func (o *outage) end(to destination) (after time.Duration, ended bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.last) == 0 {
		return 0, false
	}
	delete(o.last, to)
	for other, failed := range o.last {
		if time.Since(failed) > staleAfter {
			delete(o.last, other)
		}
	}
	o.failing.Store(int64(len(o.last)))
	return time.Since(o.since), len(o.last) == 0
}

func (d destination) place() observe.Place {
	return observe.Place{Topic: d.topic, Partition: d.partition}
}
