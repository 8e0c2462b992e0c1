package sim

import (
	"context"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"
)

var (
	errKilled = errors.New("sim: the process is killed")
	errOver   = errors.New("sim: the simulation is over")
)

// process is a consumer or a publisher: it can be stopped, continued and killed.
type process struct {
	name string
	over <-chan struct{} // closed when the simulation ends
	dead chan struct{}   // closed when the process is killed

	mu     sync.Mutex
	halt   chan struct{} // guarded by mu; closed while the process is stopped
	resume chan struct{} // guarded by mu; closed while the process runs
	killed bool          // guarded by mu
}

func newProcess(name string, over <-chan struct{}) *process {
	p := &process{name: name, over: over, dead: make(chan struct{}), halt: make(chan struct{}), resume: make(chan struct{})}
	close(p.resume)
	return p
}

func (p *process) suspend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resume = make(chan struct{})
	close(p.halt)
}

func (p *process) goOn() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.halt = make(chan struct{})
	close(p.resume)
}

func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.killed {
		p.killed = true
		close(p.dead)
	}
}

func (p *process) signals() (halt, resume <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.halt, p.resume
}

// rest waits for d and then, if the process is stopped, until it continues.
func (p *process) rest(ctx context.Context, d time.Duration, early <-chan struct{}) error {
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-early:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.dead:
			return errKilled
		case <-p.over:
			return errOver
		}
	}
	_, resume := p.signals()
	select {
	case <-resume:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.dead:
	case <-p.over:
	}
	return p.alive()
}

// alive returns why a process can do nothing more; nil while it can.
func (p *process) alive() error {
	select {
	case <-p.dead:
		return errKilled
	case <-p.over:
		return errOver
	default:
		return nil
	}
}

// rng returns the source of random numbers of one actor.
func rng(seed uint64, actor string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(actor)) // never fails
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// between draws a duration.
func between(r *rand.Rand, low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + time.Duration(r.Int64N(int64(high-low)+1))
}

// chance reports true with a probability.
func chance(r *rand.Rand, p float64) bool { return p > 0 && r.Float64() < p }
