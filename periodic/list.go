package periodic

import (
	"context"
	"fmt"
	"slices"
	"time"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// BehindAfter is how late the next ticks of a schedule must be stored until admin.Admin.SchedulesBehind, the command
// line and the dashboard report the schedule: no process runs the schedules, or none supports this one.
const BehindAfter = time.Minute

// Status is a schedule with its state in Redis.
type Status struct {
	Schedule

	Description string            // when it ticks, such as "on Monday at 07:00, Europe/Berlin"
	Owner       string            // the owner that declares it (Apply); "": defined with Set
	Version     int64             // the version of the declaration that changed it last
	Pause       *redisdelay.Pause // nil if not paused

	// Next are the nominal times of the next ticks, as many as requested, or fewer near the end. It is empty if the
	// schedule is paused or not supported by this process.
	Next []time.Time

	// Stored is how many ticks are stored ahead.
	Stored int

	// Behind is how long ago the next ticks should have been stored; 0: they are stored in time. See BehindAfter.
	Behind time.Duration

	// Problem says why this process cannot run the schedule, or which of its data is missing or damaged in Redis; "":
	// none.
	Problem string
}

// List returns all schedules, sorted by ID, each with its next times, at most next of them.
func (s *Scheduler) List(ctx context.Context, next int) ([]Status, error) {
	all, err := s.table.All(ctx)
	if err != nil {
		return nil, wrap(err, "list schedules")
	}
	var list []definition
	for _, known := range all {
		if d := decodeDefinition(known); !d.Removed {
			list = append(list, d)
		}
	}
	status, err := s.status(ctx, list, next)
	return status, wrap(err, "list schedules")
}

// Get returns one schedule with its next times, at most next of them. The error is ErrScheduleNotFound, or says that
// the definition is damaged.
func (s *Scheduler) Get(ctx context.Context, id string, next int) (Status, error) {
	d, err := s.find(ctx, id)
	if err != nil {
		return Status{}, wrap(err, "find schedule %q", id)
	}
	list, err := s.status(ctx, []definition{d}, next)
	if err != nil {
		return Status{}, wrap(err, "find schedule %q", id)
	}
	return list[0], nil
}

// status reads the state of schedules from their topics.
func (s *Scheduler) status(ctx context.Context, list []definition, next int) ([]Status, error) {
	var statuses []Status
	for some := range slices.Chunk(list, 1000) {
		var calls []script.Call
		for _, d := range some {
			calls = append(calls, s.topic(d.Topic).TickStateCall(d.ID))
		}
		for i, answer := range s.store.RunMany(ctx, calls) {
			known, err := queue.ReadTicked(answer)
			if err != nil {
				return nil, fmt.Errorf("schedule %q: %w", some[i].ID, err)
			}
			s := some[i].status(next, known)
			s.Stored = len(known.Record.Ahead)
			statuses = append(statuses, s)
		}
	}
	return statuses, nil
}

// overdue returns how long ago the first tick that is not stored became due; 0 if it is not due yet.
func (d definition) overdue(t timing, record queue.TickRecord, now time.Time) time.Duration {
	from := d.since().In(t.zone)
	if record.Revision == d.revision {
		from = cursorTime(record.Cursor, from)
	}
	missing := d.next(t, from)
	if missing.IsZero() {
		return 0
	}
	return max(0, now.Sub(missing.Add(t.delay)))
}

// status returns the status of a schedule, except the number of stored ticks.
func (d definition) status(next int, known queue.Ticked) Status {
	now := known.Now
	s := Status{Schedule: d.Schedule, Owner: d.Owner, Version: d.Version, Pause: d.Paused, Description: d.Description()}
	if d.damage != nil {
		s.Problem = d.damage.Error()
		return s
	}
	if d.Paused == nil && !d.upcoming.IsZero() && now.After(d.upcoming) {
		s.Behind = now.Sub(d.upcoming)
	}
	t, err := d.check()
	if err != nil {
		s.Problem = err.Error()
		return s
	}
	if d.upcoming.IsZero() {
		s.Problem = "Redis has lost when its next ticks are to be stored; a process that runs schedules restores it"
	}
	if d.Paused != nil {
		return s
	}
	s.Behind = max(s.Behind, d.overdue(t, known.Record, now))
	from := now.Add(-t.delay)
	if since := d.since(); since.After(from) { // earlier ticks are not stored
		from = since
	}
	for at := d.next(t, from.In(t.zone)); !at.IsZero() && len(s.Next) < next; at = d.next(t, at) {
		s.Next = append(s.Next, at)
	}
	return s
}
