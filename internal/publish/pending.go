package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// maxPendingBytes is how many bytes of messages PublishAsync calls may hold: four full batches.
const maxPendingBytes = 4 * maxBytes

// ErrTooManyPending says that there was no room for a PublishAsync call in time.
var ErrTooManyPending = errors.New("too many messages of PublishAsync have no outcome yet")

// pending are the PublishAsync calls whose outcome is not known, or has not been reported to the
// observer. It is safe for concurrent use.
type pending struct {
	// immutable
	limit    int // of messages
	observer observe.Observer
	panicked func(value any, stack []byte)
	calls    *sync.WaitGroup // a call that has entered counts until it leaves
	running  *sync.WaitGroup
	closing  <-chan struct{}

	mu         sync.Mutex
	messages   int       // guarded by mu; of the calls that have entered
	bytes      int       // guarded by mu
	waiting    []*waiter // guarded by mu; calls without room, in their order
	epochs     []*epoch  // guarded by mu; calls enter the last one
	firstError error     // guarded by mu; the first since the last flush
	unreported []*Future // guarded by mu; calls that have ended
	reporting  bool      // guarded by mu
}

// waiter is a call that waits for room.
type waiter struct {
	call  *Future
	ready chan struct{} // closed when it has entered
}

// epoch is the calls that entered between one flush and the next.
type epoch struct {
	calls int           // that have not left
	done  chan struct{} // closed when these and those of earlier epochs have left
}

func newEpoch() *epoch { return &epoch{done: make(chan struct{})} }

func newPending(config Config, calls, running *sync.WaitGroup, closing <-chan struct{}) *pending {
	return &pending{
		limit: cmp.Or(config.MaxPending, math.MaxInt), observer: config.Observer, panicked: config.Panicked,
		calls: calls, running: running, closing: closing, epochs: []*epoch{newEpoch()},
	}
}

// enter waits until there is room for a call.
func (p *pending) enter(ctx context.Context, f *Future) error {
	p.mu.Lock()
	if len(p.waiting) == 0 && p.fits(f) {
		p.take(f)
		p.mu.Unlock()
		return nil
	}
	w := &waiter{call: f, ready: make(chan struct{})}
	p.waiting = append(p.waiting, w)
	p.mu.Unlock()
	timer := time.NewTimer(time.Until(f.deadline))
	defer timer.Stop()
	var cause error
	select {
	case <-w.ready:
		return nil
	case <-p.closing:
		cause = ErrClosed
	case <-ctx.Done():
		cause = script.EndOf(ctx)
	case <-timer.C:
		cause = context.DeadlineExceeded
	}
	return p.cancelWait(w, cause)
}

// cancelWait ends the wait of a call, unless it has just entered.
func (p *pending) cancelWait(w *waiter, cause error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := slices.Index(p.waiting, w)
	if at < 0 {
		return nil
	}
	p.waiting = slices.Delete(p.waiting, at, at+1)
	p.admit() // the next may be smaller
	return fmt.Errorf("%w: %w", cause, ErrTooManyPending)
}

// fits reports whether there is room for a call. One alone may be of any size. The caller holds mu.
func (p *pending) fits(f *Future) bool {
	return p.messages == 0 || p.messages+f.messages <= p.limit && p.bytes+f.bytes <= maxPendingBytes
}

// take lets a call enter. The caller holds mu.
func (p *pending) take(f *Future) {
	p.messages += f.messages
	p.bytes += f.bytes
	f.epoch = p.epochs[len(p.epochs)-1]
	f.epoch.calls++
}

// admit lets calls enter for which there is room. The caller holds mu.
func (p *pending) admit() {
	for len(p.waiting) > 0 && p.fits(p.waiting[0].call) {
		p.take(p.waiting[0].call)
		close(p.waiting[0].ready)
		p.waiting = p.waiting[1:]
	}
}

// leave frees the room of calls.
func (p *pending) leave(calls ...*Future) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free(calls)
}

// free is leave. The caller holds mu.
func (p *pending) free(calls []*Future) {
	for _, f := range calls {
		p.messages -= f.messages
		p.bytes -= f.bytes
		f.epoch.calls--
	}
	p.advance()
	p.admit()
}

// advance ends epochs. The caller holds mu.
func (p *pending) advance() {
	for len(p.epochs) > 1 && p.epochs[0].calls == 0 {
		close(p.epochs[0].done)
		p.epochs = p.epochs[1:]
	}
}

// refuse ends a call that has sent nothing.
func (p *pending) refuse(f *Future, err error) {
	f.stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	f.finish(time.Now(), err)
	p.keepError(err)
}

// keepError keeps the first error for flush. The caller holds mu.
func (p *pending) keepError(err error) {
	if p.firstError == nil {
		p.firstError = err
	}
}

// finishAll ends calls whose pieces have ended. Another goroutine calls the observer, which would delay
// the sender of a lane here. Until then the calls keep their room, which limits the queue of reports.
func (p *pending) finishAll(ended []*Future) {
	if len(ended) == 0 {
		return
	}
	for _, f := range ended {
		f.stop()
	}
	now, quiet := time.Now(), ended[:0]
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range ended {
		f.finish(now, f.callError())
		p.keepError(f.err)
		if p.observer.Published == nil && len(f.hooks) == 0 {
			quiet = append(quiet, f)
		} else {
			p.unreported = append(p.unreported, f)
		}
	}
	p.free(quiet)
	p.calls.Add(-len(quiet))
	if len(p.unreported) > 0 && !p.reporting {
		p.reporting = true
		p.running.Go(p.reportAll) // before close waits for running: it first waits for all calls
	}
}

// reportAll reports calls until there are no more. If a function of the user ends the goroutine, as t.FailNow does, another
// goroutine reports the remaining calls.
func (p *pending) reportAll() {
	var calls []*Future
	all := false
	defer func() {
		if all {
			return
		}
		p.mu.Lock()
		p.unreported = append(calls, p.unreported...)
		p.mu.Unlock()
		p.running.Go(p.reportAll)
	}()
	for {
		p.mu.Lock()
		calls, p.unreported = p.unreported, nil
		p.reporting = len(calls) > 0
		p.mu.Unlock()
		if all = len(calls) == 0; all {
			return
		}
		for len(calls) > 0 {
			f := calls[0]
			calls = calls[1:]
			p.report(f)
		}
	}
}

// report calls the observer and the hooks of a call, which then leaves.
func (p *pending) report(f *Future) {
	defer p.calls.Done()
	defer p.leave(f)
	if p.observer.Published != nil {
		p.guard(func() { p.observer.Published(f.event()) })
	}
	for _, call := range f.hooks {
		p.guard(func() { call(f.err) })
	}
}

// guard keeps a panic of a function of the user from ending the goroutine that reports all calls.
func (p *pending) guard(call func()) {
	if p.panicked == nil {
		call()
		return
	}
	defer func() {
		if value := recover(); value != nil {
			p.panicked(value, debug.Stack())
		}
	}()
	call()
}

// flush waits until the calls that have entered have left, or ctx ends. It returns the first error
// of a call since the last flush.
func (p *pending) flush(ctx context.Context) error {
	p.mu.Lock()
	last := p.epochs[len(p.epochs)-1]
	p.epochs = append(p.epochs, newEpoch())
	p.advance()
	p.mu.Unlock()
	select {
	case <-last.done:
		return p.takeError()
	case <-ctx.Done():
	}
	select {
	case <-last.done:
		return p.takeError()
	default:
		return script.EndOf(ctx)
	}
}

// takeError returns the first error of a call, once.
func (p *pending) takeError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.firstError
	p.firstError = nil
	return err
}

// size is how many messages have entered.
func (p *pending) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.messages
}
