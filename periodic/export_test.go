package periodic

import "time"

// SetSettleFor changes how long the calls to Redis of a round may take. The schedules must not run yet.
func (p *Periodic) SetSettleFor(limit time.Duration) { p.settleFor = limit }
