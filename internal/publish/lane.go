package publish

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// linger is how long an idle lane waits for the next call before it ends.
const linger = 100 * time.Millisecond

// destination is a topic partition.
type destination struct {
	topic     string
	partition int // or wholeTopic
}

// lane is the traffic to one destination, one batch at a time.
type lane struct {
	waiting []*batch      // guarded by lanes.mu; calls join the last one
	signal  chan struct{} // signalled when a batch waits
}

// lanes sends batches, in a lane for each destination. It is safe for concurrent use.
type lanes struct {
	// immutable
	topics *topics
	ids    *queue.IDs
	outage *outage
	common queue.Batch // what all batches have in common

	running sync.WaitGroup // a goroutine for each open lane
	closing chan struct{}  // closed by close

	mu     sync.Mutex
	open   map[destination]*lane // guarded by mu; only lanes in recent use
	name   string                // guarded by mu; of the publisher
	number int64                 // guarded by mu; of the last batch, for all lanes
	closed bool                  // guarded by mu
}

func newLanes(t *topics, ids *queue.IDs, o *outage, common queue.Batch) *lanes {
	ls := &lanes{topics: t, ids: ids, outage: o, common: common, open: map[destination]*lane{}, closing: make(chan struct{})}
	ls.name = ls.newName()
	return ls
}

// newName returns a unique name for the publisher.
func (ls *lanes) newName() string { return ls.ids.Next(time.Now(), "") }

// join adds a call to a batch that has not been sent.
func (ls *lanes) join(to destination, c *call) (*batch, error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		return nil, ErrClosed
	}
	l := ls.open[to]
	if l == nil {
		l = &lane{signal: make(chan struct{}, 1)}
		ls.open[to] = l
		ls.running.Go(func() { ls.run(to, l) })
	}
	if n := len(l.waiting); n == 0 || !l.waiting[n-1].fits(c) {
		l.waiting = append(l.waiting, newBatch())
	}
	last := l.waiting[len(l.waiting)-1]
	last.add(c)
	select {
	case l.signal <- struct{}{}:
	default:
	}
	return last, nil
}

// run sends a lane's batches one after another. It lingers after the last, since a new
// goroutine for each call would cost more than the call.
func (ls *lanes) run(to destination, l *lane) {
	idle := time.NewTimer(linger)
	defer idle.Stop()
	for {
		runtime.Gosched() // lets more callers join the batch
		ctx, cancel := context.WithCancel(context.Background())
		if b := ls.next(l, cancel); b != nil {
			ls.send(ctx, to, b)
			cancel()
			continue
		}
		cancel()
		idle.Reset(linger)
		select {
		case <-l.signal:
			continue
		case <-idle.C:
		case <-ls.closing:
		}
		if ls.shut(to, l) {
			return
		}
	}
}

// next returns the next batch to send; nil if no call waits.
func (ls *lanes) next(l *lane, cancel context.CancelFunc) *batch {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	first := slices.IndexFunc(l.waiting, func(b *batch) bool { return b.callers > 0 })
	if first < 0 {
		l.waiting = nil
		return nil
	}
	b := l.waiting[first]
	l.waiting = slices.Delete(l.waiting, 0, first+1)
	ls.number++
	b.seal(ls.name, ls.number, cancel)
	return b
}

// shut ends a lane unless a call waits.
func (ls *lanes) shut(to destination, l *lane) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if len(l.waiting) > 0 {
		return false
	}
	delete(ls.open, to)
	return true
}

// close waits until the calls under way have ended, or ctx has. Later calls fail with
// ErrClosed.
func (ls *lanes) close(ctx context.Context) error {
	ls.mu.Lock()
	if !ls.closed {
		ls.closed = true
		close(ls.closing)
	}
	ls.mu.Unlock()
	return await(ctx, &ls.running) // which ends with the deadlines of Publish calls
}
