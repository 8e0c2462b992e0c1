package publish

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/redisdelay/watermill-redisdelay/observe"
)

// Future is a PublishAsync call. It is safe for concurrent use.
type Future struct {
	// immutable
	pending  *pending
	topic    string
	start    time.Time
	deadline time.Time
	messages int
	bytes    int

	// guarded by lanes.mu until the call has ended
	shares  []share
	results []result // of the shares
	pieces  []*call  // in the order of the shares and, within each, of its messages
	left    int      // pieces that have not ended
	ignored []string // keys of duplicates that were dropped
	stop    func()   // stops watching the contexts

	// Most calls have one share with one piece. These fields hold them without further allocations.
	oneResult [1]result
	onePiece  [1]*call
	piece     call

	err   error         // set before ended
	took  time.Duration // set before ended
	ended atomic.Bool
	done  chan struct{} // guarded by pending.mu; closed when the call has ended; nil until Done is called
	hooks []func(error) // guarded by pending.mu until the call has ended
	epoch *epoch        // guarded by pending.mu
}

// result is the outcome of a share.
type result struct {
	stored int // messages, counted from its first
	failed bool
	err    error // why it failed; if it did not, why it has too few replicas
}

// closedChan is the Done channel of calls that have ended before Done was called.
var closedChan = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Done is closed when the call has ended.
func (f *Future) Done() <-chan struct{} {
	if f.ended.Load() {
		return closedChan
	}
	f.pending.mu.Lock()
	defer f.pending.mu.Unlock()
	switch {
	case f.ended.Load():
		return closedChan
	case f.done == nil:
		f.done = make(chan struct{})
	}
	return f.done
}

// Err is the outcome of a call that has ended, as Publish returns it. Until then it is nil.
func (f *Future) Err() error {
	if !f.ended.Load() {
		return nil
	}
	return f.err
}

// OnDone calls a function with the outcome when the call has ended: at once if it already has.
func (f *Future) OnDone(call func(err error)) {
	f.pending.mu.Lock()
	if !f.ended.Load() {
		f.hooks = append(f.hooks, call)
		f.pending.mu.Unlock()
		return
	}
	f.pending.mu.Unlock()
	call(f.err)
}

// add makes a piece of a share.
func (f *Future) add(share int, messages []Message) *call {
	c := &f.piece
	if len(f.pieces) > 0 {
		c = new(call)
	}
	*c = newCall(messages, f.deadline)
	c.future, c.share = f, share
	f.pieces = append(f.pieces, c)
	f.left++
	return c
}

// end ends a piece. If the piece is not stored, the later pieces of its share are not stored either: as
// with Publish, only the first messages of a share may be stored. The later pieces wait behind this one in
// the same lane, so they have not been sent. The caller holds lanes.mu.
func (f *Future) end(c *call, err error) {
	c.batch = nil
	f.left--
	r := &f.results[c.share]
	switch {
	case r.failed:
	case isStored(err):
		r.stored += c.messages
		f.ignored = append(f.ignored, c.ignored...)
		if r.err == nil {
			r.err = err
		}
	default:
		r.failed, r.err = true, err
		for _, next := range f.pieces {
			if next.share == c.share && next.batch != nil {
				_ = next.batch.abandon(next, err)
				f.end(next, err)
			}
		}
	}
}

// giveUp ends the remaining pieces of a call, and reports whether there were any. The caller
// holds lanes.mu.
func (f *Future) giveUp(cause error) bool {
	if f.left == 0 {
		return false
	}
	for _, c := range f.pieces {
		if c.batch != nil {
			f.end(c, c.batch.abandon(c, cause))
		}
	}
	return true
}

// callError is the error of a call whose pieces have ended.
func (f *Future) callError() error {
	if !slices.ContainsFunc(f.results, func(r result) bool { return r.err != nil }) {
		return nil
	}
	stored, errs := make([]int, len(f.results)), make([]error, len(f.results))
	for i, r := range f.results {
		stored[i], errs[i] = r.stored, r.err
	}
	return publishError(f.topic, sharesError(f.shares, stored, errs))
}

// finish sets the outcome of a call, and drops its messages, because the user may keep the future. The
// caller holds pending.mu.
func (f *Future) finish(now time.Time, err error) {
	f.err, f.took = err, now.Sub(f.start)
	f.shares, f.results, f.pieces = nil, nil, nil
	f.ended.Store(true)
	if f.done != nil {
		close(f.done)
	}
}

func (f *Future) event() observe.Published {
	return observe.Published{Topic: f.topic, Messages: f.messages, Ignored: f.ignored, Took: f.took, Err: f.err}
}
