// Package periodic publishes messages on schedules, such as every Monday at seven in Berlin, or every 15 minutes.
//
// There is no leader. A service declares its schedules with [Scheduler.Apply] and calls [Scheduler.Run] in each process,
// which stores the next ticks ahead as ordinary delayed messages. Each tick is stored once, even if processes die. If
// all processes are down, the stored ticks are still delivered. Due times depend only on the nominal times of the ticks
// and on Redis's clock.
//
// Calls for a schedule may be repeated after an error of Redis, and then complete what is missing. An error may also be
// that of ctx or of Redis, or say that a stored definition is damaged.
//
// docs/use/periodic.md has an example program, and describes daylight saving time and failures.
package periodic

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/timetable"
)

// The errors of a Scheduler, besides ErrInvalidSchedule and those of package redisdelay.
var (
	// ErrScheduleNotFound is returned if no schedule has the ID.
	ErrScheduleNotFound = errors.New("there is no such schedule")

	// ErrOwned is returned for a schedule that another owner has declared (Apply).
	ErrOwned = errors.New("the schedule is of another owner")

	// ErrConflict is returned if concurrent calls keep changing the same schedule. Call again.
	ErrConflict = errors.New("others keep changing the schedule")
)

// Scheduler defines schedules and stores their ticks. It is safe for concurrent use, and needs no Close.
type Scheduler struct {
	config       Config
	store        *queue.Store
	table        *timetable.Timetable
	logger       watermill.LoggerAdapter
	roundTimeout time.Duration // time limit of a round of Run

	mu       sync.Mutex
	topics   map[string]*queue.Topic // guarded by mu; up to maxTopics
	unusable map[string]int64        // guarded by mu; revisions of the schedules that this process has logged as unusable
	changed  chan struct{}           // guarded by mu; closed, and replaced, when a schedule is changed
}

// New returns a Scheduler. It does no I/O. The error is a *redisdelay.ConfigError. A nil logger logs nothing.
func New(config Config, logger watermill.LoggerAdapter) (*Scheduler, error) {
	config.setDefaults()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	store := queue.NewStore(config.Client, config.Prefix, config.Observer)
	return &Scheduler{
		config: config, store: store, table: timetable.New(store.Client), logger: logger, roundTimeout: 10 * time.Second,
		topics: map[string]*queue.Topic{}, unusable: map[string]int64{}, changed: make(chan struct{}),
	}, nil
}

// Applied is the result of Apply.
type Applied struct {
	Created, Replaced, Removed []string // IDs
	Unchanged                  int

	// Superseded says that the owner has declared a newer version, so Apply has changed nothing, or has stopped.
	Superseded bool
}

// Apply declares all schedules of an owner, such as the name of a service. Each instance of the service calls it at its
// start. An unchanged schedule keeps its pending ticks; a changed one is replaced together with them, in one step.
// Schedules that the owner declared before and that are missing now are removed, so an empty list removes all. Pauses
// stay. Schedules that were defined with Set become the owner's.
//
// The version, at least 1, orders declarations, for example by the time of a build: a declaration older than the last
// one changes nothing (Applied.Superseded), so a rolling deployment does not go back and forth. Do not reuse a version
// for different declarations.
//
// Errors: [ErrInvalidSchedule], also for an invalid owner or version; [ErrOwned]; [ErrConflict].
func (s *Scheduler) Apply(ctx context.Context, owner string, version int64, schedules []Schedule) (Applied, error) {
	applied, err := s.apply(ctx, timetable.Declaration{Owner: owner, Version: version}, schedules)
	return applied, wrap(err, "apply the schedules of %q", owner)
}

func (s *Scheduler) apply(ctx context.Context, d timetable.Declaration, schedules []Schedule) (applied Applied, err error) {
	if !validName(d.Owner) || d.Version <= 0 {
		return applied, fmt.Errorf("%w: the owner %q and the version %d must be a name without spaces and a number above 0",
			ErrInvalidSchedule, d.Owner, d.Version)
	}
	if applied, err = s.define(ctx, d, schedules); err != nil || applied.Superseded {
		return applied, err
	}
	declared := make(map[string]bool, len(schedules))
	for _, s := range schedules {
		declared[s.ID] = true
	}
	all, err := s.table.All(ctx)
	var undeclared []string
	for _, known := range all {
		if !declared[known.ID] && decodeDefinition(known).Owner == d.Owner { // also if it is removed: its ticks may be left over
			undeclared = append(undeclared, known.ID)
		}
	}
	if err != nil || len(undeclared) == 0 {
		return applied, err
	}
	removal, err := s.edit(ctx, d, undeclared, func(_ string, old definition, _ time.Time) (definition, bool, error) {
		return old.removed(), !old.Removed && old.Owner == d.Owner, nil
	})
	applied.Removed, applied.Superseded = removal.Replaced, removal.Superseded
	return applied, err
}

// Set defines a single schedule, for example one that a user has made; for those of a service, use Apply. It replaces a
// schedule with the same ID together with its pending ticks, in one step. With the same topic and times, the new
// schedule continues after the last tick of the old one; otherwise it starts with the first tick that is due after now.
// A pause stays. When Set returns, the first ticks are stored; further ticks need a process that calls Run.
//
// Errors: [ErrInvalidSchedule]; [ErrOwned] for a schedule that an owner declares; [ErrConflict].
func (s *Scheduler) Set(ctx context.Context, schedule Schedule) error {
	_, err := s.define(ctx, timetable.Declaration{}, []Schedule{schedule})
	return wrap(err, "set schedule %q", schedule.ID)
}

// attempts limits how often a change is repeated after concurrent changes of the same schedule.
const attempts = 20

// define defines schedules, and stores their first ticks.
func (s *Scheduler) define(ctx context.Context, d timetable.Declaration, schedules []Schedule) (Applied, error) {
	wanted := make(map[string]definition, len(schedules))
	for _, schedule := range schedules {
		schedule.setDefaults()
		t, err := schedule.compile()
		if err != nil {
			return Applied{}, err
		}
		if _, twice := wanted[schedule.ID]; twice {
			return Applied{}, fmt.Errorf("%w %q: ID is declared twice", ErrInvalidSchedule, schedule.ID)
		}
		next := definition{Schedule: schedule, Owner: d.Owner, Version: d.Version}
		if _, err := s.body(next, Tick{Schedule: schedule.ID, Nominal: time.Now().In(t.zone), Version: d.Version}, time.Time{}); err != nil {
			return Applied{}, fmt.Errorf("%w %q: Payload and Metadata cannot be a message: %w", ErrInvalidSchedule, schedule.ID, err)
		}
		wanted[schedule.ID] = next
	}
	ids := slices.Sorted(maps.Keys(wanted))
	return s.edit(ctx, d, ids, func(id string, old definition, now time.Time) (definition, bool, error) {
		return wanted[id].after(old, now)
	})
}

// An editor returns the new definition of a schedule, and whether it differs from the old one. The old one has revision 0
// if Redis has no such schedule.
type editor func(id string, old definition, now time.Time) (next definition, differs bool, err error)

// edit changes the definitions of schedules, and stores the first ticks. It repeats a change if another process has
// changed the schedule meanwhile. It records the version before it reads the definitions, so that an older declaration
// cannot change a schedule afterwards that this one finds unchanged.
func (s *Scheduler) edit(ctx context.Context, d timetable.Declaration, ids []string, to editor) (done Applied, err error) {
	if _, _, current, err := s.table.Set(ctx, d, nil); err != nil || !current {
		return Applied{Superseded: err == nil}, err
	}
	for range attempts {
		changes, changed, work, err := s.compare(ctx, ids, to)
		if err != nil {
			return done, err
		}
		revisions, now, current, err := s.table.Set(ctx, d, changes)
		if done.Superseded = err == nil && !current; err != nil || !current {
			return done, err
		}
		done.Unchanged += len(ids) - len(changes)
		more, again := done.note(changes, changed, revisions, now)
		err = s.storeTicks(ctx, append(work, more...))
		if len(changes) > 0 {
			s.wake()
		}
		if ids = again; err != nil || len(ids) == 0 {
			return done, err
		}
	}
	return done, ErrConflict
}

// note records which changes were made. It returns the schedules whose ticks must be stored, and the schedules to change
// again: another process has changed them meanwhile, or they have left one topic and must be added to another.
func (a *Applied) note(
	changes []timetable.Change, changed []definition, revisions []int64, now time.Time,
) (work []task, again []string) {
	for i, next := range changed {
		switch {
		case revisions[i] == 0:
			again = append(again, next.ID)
			continue
		case next.moves:
			again = append(again, next.ID)
		case changes[i].Seen == 0:
			a.Created = append(a.Created, next.ID)
		default:
			a.Replaced = append(a.Replaced, next.ID)
		}
		if next.revision, next.upcoming = revisions[i], now; changes[i].Text != "" {
			work = append(work, task{definition: next, lease: now})
		}
	}
	return work, again
}

// wake wakes Run.
func (s *Scheduler) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
}

// nextChange returns a channel that is closed when this Scheduler changes a schedule.
func (s *Scheduler) nextChange() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// compare returns the changes to make. leftOver has unchanged schedules whose ticks may be missing, because the last
// process that worked on them has not reported that it is done.
func (s *Scheduler) compare(ctx context.Context, ids []string, to editor) (
	changes []timetable.Change, changed []definition, leftOver []task, err error,
) {
	known, now, err := s.table.Named(ctx, ids...)
	for i := 0; i < len(ids) && err == nil; i++ {
		var next definition
		var differs bool
		old := decodeDefinition(known[ids[i]])
		next, differs, err = to(ids[i], old, now)
		switch {
		case differs:
			changes, changed = append(changes, next.change(old)), append(changed, next)
		case old.revision != 0 && !old.upcoming.After(now.Add(leaseTime)):
			leftOver = append(leftOver, task{definition: old, lease: old.upcoming})
		}
	}
	return changes, changed, leftOver, err
}

// after returns the definition that replaces an old one, and whether they differ.
func (d definition) after(old definition, now time.Time) (next definition, differs bool, err error) {
	if old.revision == 0 || old.damage != nil {
		return d, true, nil
	}
	if !old.Removed && old.Owner != "" && old.Owner != d.Owner {
		return d, false, fmt.Errorf("%w: %q is of %q", ErrOwned, d.ID, old.Owner)
	}
	if removalStored := old.Removed && old.upcoming.After(now.Add(leaseTime)); old.Topic != d.Topic && !removalStored {
		next = old.removed()
		next.Paused, next.moves = old.Paused, true
		return next, true, nil
	}
	d.Paused = old.Paused
	same := d
	same.Since, same.Resumed, same.Version = old.Since, old.Resumed, old.Version
	if same.text() == old.text() {
		return old, false, nil
	}
	if d.sameTimes(old) {
		d.Since = old.since().UnixMilli()
		if !old.End.IsZero() && !old.End.After(now) && !old.End.Equal(d.End) { // no declaration had the ticks between the ends
			d.Since = max(d.Since, now.Add(-d.delay()).UnixMilli())
		}
	}
	return d, true, nil
}

// change returns the change that replaces an old definition.
func (d definition) change(old definition) timetable.Change {
	c := timetable.Change{ID: d.ID, Seen: old.revision, Text: d.text()}
	if d.Removed && old.damage != nil {
		c.Text = "" // delete it at once: the topic with its ticks is not known
	}
	return c
}

// removed returns the definition of a removed schedule.
func (d definition) removed() definition {
	return definition{Schedule: Schedule{ID: d.ID, Topic: d.Topic}, Owner: d.Owner, Removed: true}
}

// Remove removes a schedule and its pending ticks. A schedule that an owner declares is defined again by the next
// Apply. Errors: [ErrScheduleNotFound], also if a repeated call finds that the first one has succeeded; [ErrConflict].
func (s *Scheduler) Remove(ctx context.Context, id string) error {
	err := s.change(ctx, id, func(old definition) (definition, bool) { return old.removed(), true })
	return wrap(err, "remove schedule %q", id)
}

// Pause removes the pending ticks of a schedule, and stores no others until Resume. A pause of a paused schedule
// replaces By and Reason. Errors: a *redisdelay.ConfigError if For is set, because schedules have no pauses that end by
// themselves; [ErrScheduleNotFound]; [ErrConflict].
func (s *Scheduler) Pause(ctx context.Context, id string, pause redisdelay.Pause) error {
	if pause.For != 0 {
		return &redisdelay.ConfigError{Field: "For", Problem: "must be 0: a schedule is paused until Resume"}
	}
	why := redisdelay.Pause{By: pause.By, Reason: pause.Reason, Since: time.Now().UTC().Truncate(time.Millisecond)}
	err := s.change(ctx, id, func(old definition) (definition, bool) {
		if old.Paused != nil {
			why.Since = old.Paused.Since
		}
		next := old
		next.Paused = &why
		return next, old.Paused == nil || *old.Paused != why
	})
	return wrap(err, "pause schedule %q", id)
}

// Resume ends a pause, if there is one. The ticks of the pause are not made up for. Errors: [ErrScheduleNotFound];
// [ErrConflict].
func (s *Scheduler) Resume(ctx context.Context, id string) error {
	err := s.change(ctx, id, func(old definition) (definition, bool) {
		next := old
		next.Paused, next.Since = nil, 0
		return next, old.Paused != nil
	})
	return wrap(err, "resume schedule %q", id)
}

// change changes the definition of an existing schedule. A damaged definition can only be removed.
func (s *Scheduler) change(ctx context.Context, id string, to func(old definition) (next definition, differs bool)) error {
	var missing error
	_, err := s.edit(ctx, timetable.Declaration{}, []string{id}, func(_ string, old definition, _ time.Time) (definition, bool, error) {
		next, differs := to(old)
		if missing = old.checkExists(); old.damage != nil && next.Removed {
			missing = nil
		}
		return next, differs && missing == nil, nil
	})
	return cmp.Or(err, missing)
}

// find reads a schedule.
func (s *Scheduler) find(ctx context.Context, id string) (d definition, err error) {
	known, _, err := s.table.Named(ctx, id)
	if err != nil {
		return definition{}, err
	}
	d = decodeDefinition(known[id])
	return d, d.checkExists()
}

// checkExists returns an error if the schedule does not exist or is damaged.
func (d definition) checkExists() error {
	if d.damage == nil && (d.revision == 0 || d.Removed) {
		return ErrScheduleNotFound
	}
	return d.damage
}

// decodeDefinition decodes a definition. If it is damaged, the error is in damage. Without a definition, the result has no ID.
func decodeDefinition(in timetable.Definition) (d definition) {
	if in.ID == "" {
		return definition{}
	}
	err := json.Unmarshal([]byte(in.Text), &d)
	if err == nil && d.ID != in.ID {
		err = errors.New("it has another ID")
	}
	if err != nil {
		d = definition{Schedule: Schedule{ID: in.ID}, damage: fmt.Errorf("the definition of schedule %q is damaged: %w", in.ID, err)}
	}
	d.revision, d.upcoming = in.Revision, in.Upcoming
	return d
}

func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("redisdelay: "+format+": %w", append(args, err)...)
}
