package periodic

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/outage"
	"github.com/redisdelay/watermill-redisdelay/internal/timetable"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// leaseFor is how long other processes leave a schedule alone that one has taken.
const leaseFor = 15 * time.Second

// atLeast is how long Run waits between two rounds, unless there is more to take.
const atLeast = 10 * time.Millisecond

// storing is what Run does all the time.
const storing observe.Activity = "store ticks"

// Run stores the ticks of all schedules ahead, until ctx ends. Any number of processes may run it. Redis may be away, also
// when Run begins: it goes on when Redis is back, and logs an outage once; once more if there are schedules with functions.
//
// It calls functions (Schedule.Make) one after another, beside all other schedules, which never wait for them. When ctx ends,
// it returns once the call that is under way has returned. It returns nil.
func (p *Periodic) Run(ctx context.Context) error {
	var functions sync.WaitGroup
	functions.Go(func() { p.repeat(ctx, p.roundOfMade) }) // ends with ctx
	p.repeat(ctx, p.round)
	functions.Wait()
	return nil
}

// forgetFailure is after what time a schedule that this process could not store, and has not taken again, counts as another's.
const forgetFailure = 2 * time.Minute

// repeat does rounds until ctx ends. Each tells how long there is nothing to do after it.
func (p *Periodic) repeat(ctx context.Context, round func(context.Context) ([]task, time.Duration, error)) {
	outages := outage.New(observe.Join(p.config.Observer, p.logging()), 0)
	defer outages.Close()
	place := observe.Place{Partition: -1}
	pause := backoff.Backoff{Min: 200 * time.Millisecond, Max: 5 * time.Second}
	failing := map[string]time.Time{} // schedules that could not be stored, and when that was
	for ctx.Err() == nil {
		work, wait, err := round(ctx)
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
			backoff.Sleep(ctx, wait)
		}
	}
}

// note notes which schedules could not be stored, and tells whether there are more of them.
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
	work = p.tasks(taken, false)
	for i := range work {
		work[i].crowded = full
	}
	if err := p.settle(ctx, work); err != nil {
		return work, 0, err
	}
	wait, some := p.until(work, now)
	switch {
	case full && some: // go on at once
		return work, 0, nil
	case !next.IsZero():
		wait = min(wait, next.Sub(now))
	}
	return work, max(wait, atLeast), nil
}

// until is how long there is nothing to do, by what was done, and whether some of it was this process's to do.
func (p *Periodic) until(work []task, now time.Time) (wait time.Duration, some bool) {
	wait = p.config.PollInterval
	for _, t := range work {
		if t.ours && !t.next.IsZero() {
			wait, some = min(wait, t.next.Sub(now)), true
		}
	}
	return wait, some
}

// roundOfMade is round for the schedules whose functions this process has. However long the functions take, the calls to
// Redis have time.
func (p *Periodic) roundOfMade(ctx context.Context) (work []task, wait time.Duration, err error) {
	began := time.Now()
	reading, cancel := context.WithTimeout(ctx, p.settleFor)
	defer cancel()
	work, now, err := p.made(reading)
	if err != nil {
		return nil, 0, err
	}
	for _, t := range p.ready(reading, work) {
		p.settleMade(ctx, t, began)
	}
	if err := p.done(ctx, work); err != nil {
		return work, 0, err
	}
	wait, _ = p.until(work, now)
	return work, max(wait-time.Since(began), atLeast), nil
}

// settleMade calls the function of a schedule, and stores what it has made. It plans anew if the functions of others took long: ticks
// may have been missed meanwhile.
func (p *Periodic) settleMade(ctx context.Context, t *task, planned time.Time) {
	if time.Since(planned) > p.config.PollInterval {
		looking, cancel := context.WithTimeout(ctx, p.settleFor)
		defer cancel()
		t.plan, t.seen, t.err = plan{}, "", nil
		if p.look(looking, []*task{t}); t.err != nil {
			return
		}
	}
	p.encode(ctx, t)
	ctx, cancel := context.WithTimeout(ctx, p.settleFor)
	defer cancel()
	p.save(ctx, []*task{t})
}

// made are the schedules whose functions this process has, if they were changed or their next ticks are to be stored.
func (p *Periodic) made(ctx context.Context) (work []task, now time.Time, err error) {
	p.mu.Lock()
	makers := maps.Clone(p.makers)
	p.mu.Unlock()
	known, now, err := p.table.Named(ctx, slices.Sorted(maps.Keys(makers))...)
	if err != nil {
		return nil, now, err
	}
	p.forgetMakers(makers, known)
	var list []timetable.Definition
	for id, d := range known {
		if m := makers[id]; d.Revision != m.revision || !now.Before(m.next) {
			d.Lease = now
			list = append(list, d)
		}
	}
	return p.tasks(list, true), now, nil
}

// forgetMakers forgets the functions of schedules that were removed and are forgotten since. Until then another process may set
// the schedule again. One that is missing without that may have been lost in a failover.
func (p *Periodic) forgetMakers(makers map[string]maker, known map[string]timetable.Definition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range makers {
		m, remembered := p.makers[id] // it may have been declared anew
		definition, exists := known[id]
		switch {
		case !remembered:
		case exists && definition.Revision != m.revision: // which is never that of a removed schedule
			m.removed = read(definition).Removed
			p.makers[id] = m
		case !exists && m.removed:
			delete(p.makers, id)
		}
	}
}

// tasks are the schedules that have a function, or those that have none.
func (p *Periodic) tasks(list []timetable.Definition, made bool) (work []task) {
	for _, t := range list {
		if d := read(t); d.Made == made {
			work = append(work, task{definition: d, lease: t.Lease})
		}
	}
	return work
}
