package delivery

import (
	"sync"
	"time"
)

const (
	// maxClaim is the most messages that one claim asks for. Beyond a few hundred,
	// larger batches save nothing and keep Redis busy for milliseconds.
	maxClaim = 500

	// maxHold is how long a consumer may hold back a message that another idle
	// consumer could handle.
	maxHold = 100 * time.Millisecond
)

// pace measures how fast messages are handled and says how many to claim ahead.
// It is safe for concurrent use.
type pace struct {
	mu    sync.Mutex
	cycle time.Duration // guarded by mu; of one message at one worker, averaged
	step  int           // guarded by mu; the next claim's limit while speeding up
}

// observe notes how long a message took from the offer to its ack or nack. A slow
// one counts at once, a fast one by and by: holding back too much costs others.
func (p *pace) observe(cycle time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.cycle == 0:
		p.cycle = max(cycle, 1)
	case cycle > p.cycle:
		p.cycle = (p.cycle + cycle) / 2
	default:
		p.cycle -= (p.cycle - cycle) / 8
	}
}

// ahead is how many messages the workers handle in half the time that a message
// may be held back; none before the first has been handled.
func (p *pace) ahead(workers int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cycle == 0 {
		return 0
	}
	return min(2*maxClaim, int(maxHold/2*time.Duration(workers)/p.cycle))
}

// most limits a claim while the pace is not known well: from one message for each
// worker it doubles with every claim that finds enough.
func (p *pace) most(workers int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.step, workers)
}

// claimed notes what a claim got.
func (p *pace) claimed(got, limit int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if got == limit {
		p.step = min(maxClaim, max(p.step, 2*limit))
	}
}

// stalled notes that messages were held back too long.
func (p *pace) stalled() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cycle, p.step = max(p.cycle, maxHold), 0
}
