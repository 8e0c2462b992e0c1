package periodic

import (
	"context"
	"time"
)

// SetRoundTimeout changes how long the calls to Redis of a round may take. The schedules must not run yet.
func (s *Scheduler) SetRoundTimeout(limit time.Duration) { s.roundTimeout = limit }

// Round is a round of Run.
func (s *Scheduler) Round(ctx context.Context) error {
	_, _, err := s.round(ctx)
	return err
}
