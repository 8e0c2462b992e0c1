package delivery

import "time"

// lookAhead is how far ahead messages are claimed. It is half of maxHold, so that handlers
// that are slower than expected still take the messages in time.
const lookAhead = maxHold / 2

// pace is how fast messages are handled.
type pace struct {
	cycle time.Duration // average time of one message, or batch, at one worker; 0: not known yet
}

// note records how long a message took, from when a worker got it to its ack or nack. A
// slow message counts at once, fast ones gradually, since holding too much costs others.
func (p *pace) note(cycle time.Duration) {
	switch {
	case p.cycle == 0:
		p.cycle = max(cycle, 1)
	case cycle > p.cycle:
		p.cycle = (p.cycle + cycle) / 2
	default:
		p.cycle -= (p.cycle - cycle) / 8
	}
}

// rate is how many messages, or batches, a worker handles within lookAhead if it has been busy with
// one for this long. It is 0 before the first message is handled, and for a worker that
// has been busy for lookAhead.
func (p *pace) rate(busy time.Duration) float64 {
	if p.cycle == 0 || busy >= lookAhead {
		return 0
	}
	return float64(lookAhead) / float64(max(p.cycle, busy))
}

// ahead is the rate of all workers together if none is slow, but at most a limit.
func (p *pace) ahead(workers, each, limit int) int {
	return min(limit, int(float64(workers)*p.rate(0))*each)
}
