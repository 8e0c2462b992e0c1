package periodic

import (
	"context"
	"time"
)

// SetRoundTimeout changes how long the calls to Redis of a round may take. The schedules must not run yet.
func (p *Scheduler) SetRoundTimeout(limit time.Duration) { p.roundTimeout = limit }

// Round is a round of Run.
func (p *Scheduler) Round(ctx context.Context) error {
	_, _, err := p.round(ctx)
	return err
}
