package publish

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// linger is how long the goroutine of a lane waits for the next call.
const linger = 100 * time.Millisecond

// destination is a topic partition.
type destination struct {
	topic     string
	partition int // or wholeTopic
}

// lane is the traffic to one destination, one batch at a time.
type lane struct {
	waiting []*batch      // guarded by lanes.mu; calls join the last one
	signal  chan struct{} // there is something waiting
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
	open   map[destination]*lane // guarded by mu; only those used just now
	name   string                // guarded by mu; of the publisher
	number int64                 // guarded by mu; of the last batch, for all lanes
	closed bool                  // guarded by mu
}

func newLanes(t *topics, ids *queue.IDs, o *outage, common queue.Batch) *lanes {
	l := &lanes{topics: t, ids: ids, outage: o, common: common, open: map[destination]*lane{}, closing: make(chan struct{})}
	l.name = l.newName()
	return l
}

// newName makes a name for the publisher that nobody else has.
func (l *lanes) newName() string { return l.ids.Next(time.Now(), "") }

// join adds a call to a batch that is not sent yet.
func (l *lanes) join(to destination, c *call) (*batch, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, ErrClosed
	}
	one := l.open[to]
	if one == nil {
		one = &lane{signal: make(chan struct{}, 1)}
		l.open[to] = one
		l.running.Go(func() { l.run(to, one) })
	}
	if n := len(one.waiting); n == 0 || !one.waiting[n-1].fits(c) {
		one.waiting = append(one.waiting, newBatch())
	}
	last := one.waiting[len(one.waiting)-1]
	last.add(c)
	select {
	case one.signal <- struct{}{}:
	default:
	}
	return last, nil
}

// run sends a lane's batches one after another, until no call has come for a while: a new
// goroutine for each call would cost more than the call.
func (l *lanes) run(to destination, one *lane) {
	idle := time.NewTimer(linger)
	defer idle.Stop()
	for {
		runtime.Gosched() // callers that are about to join make a fuller batch
		ctx, cancel := context.WithCancel(context.Background())
		if b := l.next(one, cancel); b != nil {
			l.send(ctx, to, b)
			cancel()
			continue
		}
		cancel()
		idle.Reset(linger)
		select {
		case <-one.signal:
			continue
		case <-idle.C:
		case <-l.closing:
		}
		if l.shut(to, one) {
			return
		}
	}
}

// next returns the next batch to send; nil when no call waits.
func (l *lanes) next(one *lane, cancel context.CancelFunc) *batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := slices.IndexFunc(one.waiting, func(b *batch) bool { return b.callers > 0 })
	if first < 0 {
		one.waiting = nil
		return nil
	}
	b := one.waiting[first]
	one.waiting = slices.Delete(one.waiting, 0, first+1)
	l.number++
	b.send(l.name, l.number, cancel)
	return b
}

// shut ends a lane unless a call waits.
func (l *lanes) shut(to destination, one *lane) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(one.waiting) > 0 {
		return false
	}
	delete(l.open, to)
	return true
}

// close waits until the calls under way have ended, or ctx has. Later calls fail with
// ErrClosed.
func (l *lanes) close(ctx context.Context) error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.closing)
	}
	l.mu.Unlock()
	return await(ctx, &l.running) // which ends with the deadlines of Publish calls
}
