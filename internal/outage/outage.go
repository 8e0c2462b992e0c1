// Package outage reports to an Observer when an activity begins to fail and when that ends, once
// each. Neither those who report attempts nor the Observer must remember earlier attempts.
package outage

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/redisdelay/watermill-redisdelay/observe"
)

// maxOutages is how many outages a State keeps. Beyond it, only failed attempts are reported.
const maxOutages = 1000

// State knows which activities of a Publisher or a subscription fail, and where. It is safe for
// concurrent use. It holds no lock while it calls the Observer: a slow one delays only the
// goroutine that calls it. The outages of a place are reported in order.
type State struct {
	// immutable
	observer observe.Observer
	forget   time.Duration

	open atomic.Int64 // len(outages), so that Worked costs nothing while all works

	mu      sync.Mutex
	outages map[activity]outage      // guarded by mu; nil before the first failure
	known   map[observe.Activity]int // guarded by mu; how many outages the observer knows; nil before the first failure
	closed  bool                     // guarded by mu
}

type activity struct {
	what  observe.Activity
	place observe.Place
}

// outage is the state of an activity that fails, or has failed until just now.
type outage struct {
	since, last time.Time // the first failure and the last one
	err         error     // of the first failure
	lasts       bool
	stopped     bool // how it has ended
	reported    bool // the observer knows that it lasts
	reporting   bool // a goroutine calls the observer
}

// New returns a State without outages. When an activity works in one place, its outages elsewhere
// end if nothing was tried there for the time forget; 0: they do not.
func New(observer observe.Observer, forget time.Duration) *State {
	return &State{observer: observer, forget: forget}
}

// Failed reports a failed attempt. The first one begins an outage.
func (s *State) Failed(what observe.Activity, place observe.Place, err error) {
	if s.observer.Failed != nil {
		s.observer.Failed(observe.Failed{Place: place, Activity: what, Err: err})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a, now := activity{what, place}, time.Now()
	o, exists := s.outages[a]
	if s.closed || !exists && len(s.outages) >= maxOutages {
		return
	}
	if s.outages == nil {
		s.outages, s.known = map[activity]outage{}, map[observe.Activity]int{}
	}
	if !o.lasts && !o.reported { // else it goes on, as far as the observer knows
		o.since, o.err = now, err
	}
	o.lasts, o.last = true, now
	s.outages[a] = o
	s.report(a)
}

// Worked reports a successful attempt, and returns whether it ends an outage.
func (s *State) Worked(what observe.Activity, place observe.Place) (ends bool) {
	if s.open.Load() == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.untried(what) {
		s.end(a, false)
	}
	return s.end(activity{what, place}, false)
}

// Stopped reports that nothing is tried in a place any more.
func (s *State) Stopped(what observe.Activity, place observe.Place) {
	if s.open.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(activity{what, place}, true)
}

// Close ends all outages, since nothing is tried any more.
func (s *State) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, a := range s.keys() {
		s.end(a, true)
	}
}

// Fails reports whether an activity fails in a place.
func (s *State) Fails(what observe.Activity, place observe.Place) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outages[activity{what, place}].lasts
}

// untried returns the outages of an activity that are to be forgotten. The caller holds mu.
func (s *State) untried(what observe.Activity) (list []activity) {
	if s.forget == 0 {
		return nil
	}
	for a, o := range s.outages {
		if a.what == what && time.Since(o.last) > s.forget {
			list = append(list, a)
		}
	}
	return list
}

// keys returns all outages. The caller holds mu.
func (s *State) keys() (list []activity) {
	for a := range s.outages {
		list = append(list, a)
	}
	return list
}

// end ends an outage, and returns whether there was one. The caller holds mu.
func (s *State) end(a activity, stopped bool) bool {
	o := s.outages[a]
	if !o.lasts {
		return false
	}
	o.lasts, o.stopped = false, stopped
	s.outages[a] = o
	s.report(a)
	return true
}

// report calls the observer until it knows the state of an outage, unless another goroutine does
// that already. The caller holds mu; report releases it during calls.
func (s *State) report(a activity) {
	o := s.outages[a]
	if o.reporting {
		return
	}
	for ; o.lasts != o.reported; o = s.outages[a] {
		o.reported, o.reporting = o.lasts, true
		s.outages[a] = o
		s.open.Store(int64(len(s.outages)))
		others := s.known[a.what]
		if o.reported {
			s.known[a.what]++
		} else {
			others--
			s.known[a.what]--
		}
		func() {
			s.mu.Unlock()
			defer s.mu.Lock() // also after a panic, since a deferred Unlock follows
			s.call(a, o, others)
		}()
	}
	if o.reporting = false; o.lasts {
		s.outages[a] = o
	} else {
		delete(s.outages, a)
	}
	s.open.Store(int64(len(s.outages)))
}

func (s *State) call(a activity, o outage, others int) {
	switch {
	case o.lasts && s.observer.OutageBegan != nil:
		s.observer.OutageBegan(observe.OutageBegan{Place: a.place, Activity: a.what, Err: o.err, Others: others})
	case !o.lasts && s.observer.OutageEnded != nil:
		s.observer.OutageEnded(observe.OutageEnded{
			Place: a.place, Activity: a.what, After: time.Since(o.since), Others: others, Stopped: o.stopped,
		})
	}
}
