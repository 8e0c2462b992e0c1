// Package outage tells an Observer when an activity begins to fail and when that ends, once
// each. Who reports an attempt, and who listens, need to know nothing of earlier attempts.
package outage

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/redisdelay/watermill-redisdelay/observe"
)

// maxOutages is how many outages a State knows. The attempts of others are still told.
const maxOutages = 1000

// State knows which activities of a Publisher or a subscription fail, and where. It is safe for
// concurrent use. It holds no lock while it calls the Observer: a slow one holds up only the
// goroutine that calls it. The outages of a place are told in their order.
type State struct {
	// immutable
	observer observe.Observer
	forget   time.Duration

	open atomic.Int64 // len(outages), so that Worked costs nothing while all works

	mu      sync.Mutex
	outages map[activity]outage      // guarded by mu
	told    map[observe.Activity]int // guarded by mu; how many outages the observer knows
	closed  bool                     // guarded by mu
}

type activity struct {
	what  observe.Activity
	place observe.Place
}

// outage is what is known of an activity that fails, or has until just now.
type outage struct {
	since, last time.Time // the first failure and the last one
	err         error     // of the first failure
	lasts       bool
	stopped     bool // how it has ended
	told        bool // the observer knows that it lasts
	telling     bool // a goroutine tells the observer
}

// New returns a State in which all works. An activity that works in one place ends its outages
// in places where nothing was tried for the time to forget them; 0: it ends none.
func New(observer observe.Observer, forget time.Duration) *State {
	return &State{
		observer: observer, forget: forget,
		outages: map[activity]outage{}, told: map[observe.Activity]int{},
	}
}

// Failed tells that an attempt has failed. The first one begins an outage.
func (s *State) Failed(what observe.Activity, place observe.Place, err error) {
	if s.observer.Failed != nil {
		s.observer.Failed(observe.Failed{Place: place, What: what, Err: err})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a, now := activity{what, place}, time.Now()
	o, known := s.outages[a]
	if s.closed || !known && len(s.outages) >= maxOutages {
		return
	}
	if !o.lasts && !o.told { // else it goes on, as far as the observer knows
		o.since, o.err = now, err
	}
	o.lasts, o.last = true, now
	s.outages[a] = o
	s.tell(a)
}

// Worked tells that an attempt has succeeded, and returns whether that ends an outage.
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

// Stopped tells that nothing is tried in a place any more.
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

// Fails tells whether an activity fails in a place.
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
	s.tell(a)
	return true
}

// tell tells the observer what it does not know of an outage, until it knows all. If another
// goroutine does so, that one goes on. The caller holds mu, which is free meanwhile.
func (s *State) tell(a activity) {
	o := s.outages[a]
	if o.telling {
		return
	}
	for ; o.lasts != o.told; o = s.outages[a] {
		o.told, o.telling = o.lasts, true
		s.outages[a] = o
		s.open.Store(int64(len(s.outages)))
		others := s.told[a.what]
		if o.told {
			s.told[a.what]++
		} else {
			others--
			s.told[a.what]--
		}
		s.mu.Unlock()
		s.call(a, o, others)
		s.mu.Lock()
	}
	if o.telling = false; o.lasts {
		s.outages[a] = o
	} else {
		delete(s.outages, a)
	}
	s.open.Store(int64(len(s.outages)))
}

func (s *State) call(a activity, o outage, others int) {
	switch {
	case o.lasts && s.observer.OutageBegan != nil:
		s.observer.OutageBegan(observe.OutageBegan{Place: a.place, What: a.what, Err: o.err, Others: others})
	case !o.lasts && s.observer.OutageEnded != nil:
		s.observer.OutageEnded(observe.OutageEnded{
			Place: a.place, What: a.what, After: time.Since(o.since), Others: others, Stopped: o.stopped,
		})
	}
}
