package periodic

import (
	"context"
	"time"
)

// SetSettleFor changes how long the calls to Redis of a round may take. The schedules must not run yet.
func (p *Periodic) SetSettleFor(limit time.Duration) { p.settleFor = limit }

// HasFunction tells whether this process has a function of a schedule.
func (p *Periodic) HasFunction(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, has := p.makers[id]
	return has
}

// Round is a round of Run.
func (p *Periodic) Round(ctx context.Context) error {
	_, _, err := p.round(ctx)
	return err
}

// RoundOfMade is a round of Run for the schedules with functions.
func (p *Periodic) RoundOfMade(ctx context.Context) error {
	_, _, err := p.roundOfMade(ctx)
	return err
}
