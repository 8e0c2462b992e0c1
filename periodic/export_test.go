package periodic

import (
	"context"
	"time"
)

// SetSettleFor changes how long the calls to Redis of a round may take. The schedules must not run yet.
func (p *Scheduler) SetSettleFor(limit time.Duration) { p.settleFor = limit }

// Round is a round of Run.
func (p *Scheduler) Round(ctx context.Context) error {
	_, _, err := p.round(ctx)
	return err
}
