package periodic

import (
	"context"
	"maps"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/outage"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// leaseTime is how long a process may work on a schedule before another one takes it.
const leaseTime = 15 * time.Second

// minRoundPause is the shortest wait of Run between two rounds, unless more schedules are to be taken.
const minRoundPause = 10 * time.Millisecond

// storing is the activity of Run.
const storing observe.Activity = "store ticks"

// forgetFailure is how long a failed schedule that this process has not taken again counts as failing. After that, another
// process is expected to have stored it.
const forgetFailure = 2 * time.Minute

// Run stores the ticks of all schedules ahead until ctx ends, and returns nil. Any number of processes may run it. It
// starts and continues while Redis is unavailable, and logs an outage once.
func (s *Scheduler) Run(ctx context.Context) error {
	outages := outage.New(observe.Join(s.config.Observer, s.logging()), 0)
	defer outages.Close()
	place := observe.Place{Partition: -1}
	pause := backoff.Backoff{Min: 200 * time.Millisecond, Max: 5 * time.Second}
	failing := map[string]time.Time{} // schedules whose ticks could not be stored, and when
	for ctx.Err() == nil {
		changed := s.nextChange() // before the round, so that no change is overlooked
		work, wait, err := s.round(ctx)
		more := s.note(failing, work)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			if more && outages.Fails(storing, place) { // an outage is logged only when it begins
				s.logger.Error("Could not store the ticks of more schedules; trying again", err, nil)
			}
			outages.Failed(storing, place, err)
			pause.Wait(ctx)
		default:
			if len(failing) == 0 { // otherwise the failed schedules were not in this round
				outages.Worked(storing, place)
			}
			pause.Reset()
			backoff.SleepUnless(ctx, wait, changed)
		}
	}
	return nil
}

// note records which schedules failed, and reports whether any of them did not fail before.
func (s *Scheduler) note(failing map[string]time.Time, work []task) (more bool) {
	for _, t := range work {
		_, before := failing[t.ID]
		if delete(failing, t.ID); t.err != nil {
			failing[t.ID] = time.Now()
			more = more || !before
		}
	}
	maps.DeleteFunc(failing, func(_ string, at time.Time) bool { return time.Since(at) > forgetFailure+s.config.PollInterval })
	return more
}

func (s *Scheduler) logging() observe.Observer {
	return observe.Observer{
		OutageBegan: func(e observe.OutageBegan) {
			s.logger.Error("Could not store the ticks of schedules; trying again", e.Err, nil)
		},
		OutageEnded: func(e observe.OutageEnded) {
			if !e.Stopped {
				s.logger.Info("The ticks of schedules are stored again", nil)
			}
		},
	}
}

// round takes schedules, stores their next ticks, and returns how long to wait for the next round.
func (s *Scheduler) round(ctx context.Context) (work []task, wait time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.roundTimeout)
	defer cancel()
	taken, now, next, err := s.table.Take(ctx, leaseTime)
	if err != nil {
		return nil, 0, err
	}
	full := !next.IsZero() && !next.After(now)
	for _, t := range taken {
		work = append(work, task{definition: decodeDefinition(t), lease: t.Lease, crowded: full})
	}
	if err := s.storeTicks(ctx, work); err != nil {
		return work, 0, err
	}
	wait = s.config.PollInterval
	some := false
	for _, t := range work {
		if t.usable && !t.next.IsZero() {
			wait, some = min(wait, t.next.Sub(now)), true
		}
	}
	switch {
	case full && some: // continue at once
		return work, 0, nil
	case !next.IsZero():
		wait = min(wait, next.Sub(now))
	}
	return work, max(wait, minRoundPause), nil
}
