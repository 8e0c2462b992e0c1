package periodic

import (
	"context"
	"maps"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/outage"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// leaseFor is how long other processes leave a schedule alone that one has taken.
const leaseFor = 15 * time.Second

// atLeast is how long Run waits between two rounds, unless there is more to take.
const atLeast = 10 * time.Millisecond

// storing is what Run does all the time.
const storing observe.Activity = "store ticks"

// forgetFailure is after what time a schedule that this process could not store, and has not taken again, counts as another's.
const forgetFailure = 2 * time.Minute

// Run stores the ticks of all schedules ahead until ctx ends, and returns nil. Any number of processes may run it. It
// starts and continues while Redis is unavailable, and logs an outage once.
func (p *Periodic) Run(ctx context.Context) error {
	outages := outage.New(observe.Join(p.config.Observer, p.logging()), 0)
	defer outages.Close()
	place := observe.Place{Partition: -1}
	pause := backoff.Backoff{Min: 200 * time.Millisecond, Max: 5 * time.Second}
	failing := map[string]time.Time{} // schedules that could not be stored, and when that was
	for ctx.Err() == nil {
		changed := p.nextChange() // before the round, so that none is overlooked
		work, wait, err := p.round(ctx)
		more := p.note(failing, work)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			if more && outages.Fails(storing, place) { // of which only its beginning is logged
				p.logger.Error("Could not store the ticks of more schedules; trying again", err, nil)
			}
			outages.Failed(storing, place, err)
			pause.Wait(ctx)
		default:
			if len(failing) == 0 { // else this round says nothing of them
				outages.Worked(storing, place)
			}
			pause.Reset()
			backoff.SleepUnless(ctx, wait, changed)
		}
	}
	return nil
}

// note notes which schedules could not be stored, and reports whether there are more of them.
func (p *Periodic) note(failing map[string]time.Time, work []task) (more bool) {
	for _, t := range work {
		_, before := failing[t.ID]
		if delete(failing, t.ID); t.err != nil {
			failing[t.ID] = time.Now()
			more = more || !before
		}
	}
	maps.DeleteFunc(failing, func(_ string, at time.Time) bool { return time.Since(at) > forgetFailure+p.config.PollInterval })
	return more
}

func (p *Periodic) logging() observe.Observer {
	return observe.Observer{
		OutageBegan: func(e observe.OutageBegan) {
			p.logger.Error("Could not store the ticks of schedules; trying again", e.Err, nil)
		},
		OutageEnded: func(e observe.OutageEnded) {
			if !e.Stopped {
				p.logger.Info("The ticks of schedules are stored again", nil)
			}
		},
	}
}

// round takes what is to be stored, stores it, and returns how long there is nothing to do.
func (p *Periodic) round(ctx context.Context) (work []task, wait time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.settleFor)
	defer cancel()
	taken, now, next, err := p.table.Take(ctx, leaseFor)
	if err != nil {
		return nil, 0, err
	}
	full := !next.IsZero() && !next.After(now)
	for _, t := range taken {
		work = append(work, task{definition: read(t), lease: t.Lease, crowded: full})
	}
	if err := p.settle(ctx, work); err != nil {
		return work, 0, err
	}
	wait = p.config.PollInterval
	some := false
	for _, t := range work {
		if t.usable && !t.next.IsZero() {
			wait, some = min(wait, t.next.Sub(now)), true
		}
	}
	switch {
	case full && some: // go on at once
		return work, 0, nil
	case !next.IsZero():
		wait = min(wait, next.Sub(now))
	}
	return work, max(wait, atLeast), nil
}
