package delivery

import "time"

// lookAhead is how far ahead messages are claimed. It is half of maxHold, so that
// handlers that are slower than expected still take what is held in time.
const lookAhead = maxHold / 2

// pace is how fast messages are handled.
type pace struct {
	cycle time.Duration // of one message at one worker, averaged; 0: not known yet
}

// observe notes how long a message took, from when a worker got it to its ack or nack. A
// slow one counts at once, a fast one by and by: holding back too much costs others.
func (p *pace) observe(cycle time.Duration) {
	switch {
	case p.cycle == 0:
		p.cycle = max(cycle, 1)
	case cycle > p.cycle:
		p.cycle = (p.cycle + cycle) / 2
	default:
		p.cycle -= (p.cycle - cycle) / 8
	}
}

// rate is how many messages a worker that has been at one for so long handles within
// lookAhead: none before the first has been handled, or if it has taken all that time.
func (p *pace) rate(busy time.Duration) float64 {
	if p.cycle == 0 || busy >= lookAhead {
		return 0
	}
	return float64(lookAhead) / float64(max(p.cycle, busy))
}

// ahead is the same for all of the workers, if none of them is at a message for long.
func (p *pace) ahead(workers int) int {
	return min(2*maxClaim, int(float64(workers)*p.rate(0)))
}
