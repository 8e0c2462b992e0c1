package periodic

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// Trigger publishes a message of a schedule at once, also while it is paused. Its ticks come as if nothing had happened.
// Errors: ErrScheduleNotFound, ErrNoFunction, ErrInvalidSchedule if this host cannot use it, such as for a time zone that it
// does not know, redisdelay.ErrMessageTooLarge, that of Make, of the Marshaler, of ctx or of Redis. After an error of Redis the
// message may be published.
func (p *Periodic) Trigger(ctx context.Context, id string) error {
	return wrap(p.extra(ctx, id, func(d definition, t timing, now time.Time) ([]Tick, error) {
		return []Tick{{Schedule: id, Nominal: now.In(t.zone), Version: d.Version, Origin: OriginTrigger}}, nil
	}), "trigger schedule %q", id)
}

// Backfill publishes the messages for all nominal times from one time until another, which is not included, at once and in
// order, whether they have come before or not, also while the schedule is paused, before its Start, or from its End on. It
// returns how many; 0 with an error, also if some are published. Errors: those of Trigger, and ErrTooManyTicks.
func (p *Periodic) Backfill(ctx context.Context, id string, from, to time.Time) (int, error) {
	var ticks []Tick
	err := p.extra(ctx, id, func(d definition, t timing, _ time.Time) ([]Tick, error) {
		d.Start, d.End = time.Time{}, time.Time{}
		for at := d.next(t, from.Add(-time.Millisecond).In(t.zone)); !at.IsZero() && at.Before(to); at = d.next(t, at) {
			if len(ticks) == MaxBackfill {
				return nil, fmt.Errorf("%w from %s to %s: more than %d", ErrTooManyTicks, from, to, MaxBackfill)
			}
			ticks = append(ticks, Tick{Schedule: id, Nominal: at, Version: d.Version, Origin: OriginBackfill})
		}
		return ticks, nil
	})
	if err != nil {
		return 0, wrap(err, "fill in ticks of schedule %q", id)
	}
	return len(ticks), nil
}

// extra publishes messages of a schedule that its record knows nothing of.
func (p *Periodic) extra(ctx context.Context, id string, choose func(definition, timing, time.Time) ([]Tick, error)) error {
	d, err := p.find(ctx, id)
	if err != nil {
		return err
	}
	t := task{definition: d}
	if t.timing, err = d.compile(); err != nil {
		return err
	}
	if t.Make = p.makerOf(d); d.Made && t.Make == nil {
		return ErrNoFunction
	}
	if err := p.topic(d.Topic).Enlist(ctx); err != nil {
		return err
	}
	partition := p.topic(d.Topic).Partition(0)
	now, err := partition.Now(ctx)
	if err != nil {
		return err
	}
	ticks, err := choose(t.definition, t.timing, time.UnixMilli(now))
	if err != nil {
		return err
	}
	return p.publish(ctx, t.definition, partition, ticks)
}

// publish stores the messages of ticks, due at once.
func (p *Periodic) publish(ctx context.Context, d definition, to *queue.Partition, ticks []Tick) error {
	ids := script.NewIDs()
	batch := queue.Batch{Publisher: watermill.NewULID(), Duplicates: queue.RejectDuplicates}
	var call []queue.Message
	size := 0
	push := func() error {
		batch.Number++
		batch.Calls = [][]queue.Message{call}
		pause := backoff.Backoff{Min: 50 * time.Millisecond, Max: time.Second}
		for len(call) > 0 {
			_, err := to.Push(ctx, batch)
			if err == nil {
				break
			}
			if !script.Transient(err) || !pause.Wait(ctx) {
				return err
			}
		}
		call, size = nil, 0
		return nil
	}
	traits := d.traits()
	for _, tick := range ticks {
		body, err := p.body(d, tick)
		if err != nil {
			return err
		}
		if size+len(body) > maxBytes || len(call) == maxStored {
			if err := push(); err != nil {
				return err
			}
		}
		size += len(body)
		call = append(call, queue.Message{ID: ids.Next(time.Now(), traits), Traits: traits, Body: body})
	}
	return push()
}
