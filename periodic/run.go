package periodic

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/outage"
	"github.com/redisdelay/watermill-redisdelay/internal/timetable"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

const (
	// leaseFor is how long other processes leave a schedule alone that one has taken.
	leaseFor = 15 * time.Second

	// settleFor is how long storing the ticks of what was taken may take.
	settleFor = 10 * time.Second
)

// storing is what Run does all the time.
const storing observe.Activity = "store ticks"

// Run stores the ticks of all schedules ahead, until ctx ends. Any number of processes may run it. Redis may be away, also
// when Run begins: it goes on when Redis is back, and logs an outage once. It returns nil.
func (p *Periodic) Run(ctx context.Context) error {
	outages := outage.New(observe.Join(p.config.Observer, p.logging()), 0)
	defer outages.Close()
	place := observe.Place{Partition: -1}
	pause := backoff.Backoff{Min: 200 * time.Millisecond, Max: 5 * time.Second}
	for ctx.Err() == nil {
		wait, err := p.round(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			outages.Failed(storing, place, err)
			pause.Wait(ctx)
		default:
			outages.Worked(storing, place)
			pause.Reset()
			backoff.Sleep(ctx, wait)
		}
	}
	return nil
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
func (p *Periodic) round(ctx context.Context) (wait time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, settleFor)
	defer cancel()
	taken, now, next, err := p.table.Take(ctx, leaseFor)
	if err != nil {
		return 0, err
	}
	made, err := p.made(ctx, now)
	if err != nil {
		return 0, err
	}
	var work []task
	for _, t := range append(taken, made...) {
		d, err := read(t)
		if err != nil { // it is taken again after its lease, and must not stop the others
			p.logger.Error("Could not read a schedule", err, watermill.LogFields{"schedule": t.ID})
			continue
		}
		work = append(work, task{definition: d, lease: t.Lease})
	}
	if err := p.settle(ctx, work); err != nil {
		return 0, err
	}
	wait = p.config.PollInterval
	for _, t := range work {
		if t.ours && !t.next.IsZero() {
			wait = min(wait, max(t.next.Sub(now), 10*time.Millisecond))
			if len(taken) == timetable.PageSize {
				return 0, nil // there may be more
			}
		}
	}
	if !next.IsZero() {
		wait = min(wait, max(next.Sub(now), 10*time.Millisecond))
	}
	return wait, nil
}

// made are the schedules whose functions this process has, if they were changed or their next ticks are to be stored.
func (p *Periodic) made(ctx context.Context, now time.Time) (list []timetable.Definition, err error) {
	p.mu.Lock()
	makers := maps.Clone(p.makers)
	p.mu.Unlock()
	known, _, err := p.table.Named(ctx, slices.Sorted(maps.Keys(makers))...)
	for id, d := range known {
		if m := makers[id]; d.Revision != m.revision || !now.Before(m.next) {
			d.Lease = now
			list = append(list, d)
		}
	}
	return list, err
}
