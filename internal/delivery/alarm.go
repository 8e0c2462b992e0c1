package delivery

import (
	"sync"
	"sync/atomic"
	"time"
)

// idle is when an alarm calls again if there is nothing to do.
const idle = time.Hour

// alarm calls a function when it is rung, and again at the time that the last call returned. Calls do not overlap. Each
// call has its own goroutine, so a subscription that waits for hours keeps no goroutine for its alarm.
type alarm struct {
	timer *time.Timer
	rung  atomic.Bool // since the last call began

	mu sync.Mutex       // held during calls
	do func() time.Time // guarded by mu; nil: nothing is called
}

func newAlarm() *alarm {
	a := &alarm{}
	a.timer = time.AfterFunc(idle, a.call)
	a.timer.Stop()
	return a
}

// set replaces the function, and calls the new one at once. When set returns, the old one is not under way.
func (a *alarm) set(do func() (next time.Time)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.do = do
	a.ring()
}

// stop ends the calls. None is under way when it returns.
func (a *alarm) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.do = nil
	a.timer.Stop()
}

// ring makes a call begin now, or after the one that is under way. It does not wait.
func (a *alarm) ring() {
	a.rung.Store(true)
	a.timer.Reset(0)
}

func (a *alarm) call() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.do == nil {
		return
	}
	a.rung.Store(false)
	next := a.do()
	a.timer.Reset(time.Until(next))
	if a.rung.Load() { // Reset may have undone that
		a.timer.Reset(0)
	}
}

// signal sends a signal on a channel that holds one.
func signal(channel chan<- struct{}) {
	select {
	case channel <- struct{}{}:
	default:
	}
}
