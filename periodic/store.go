package periodic

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"golang.org/x/sync/errgroup"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/timetable"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

const (
	// maxBytes is the maximum size of the messages of a schedule that one call stores.
	maxBytes = 4 << 20

	// portion is the approximate size of the messages in memory at once.
	portion = 16 << 20

	// enlisters is the number of topics checked at once.
	enlisters = 16

	// maxTopics is the number of topics that a Scheduler remembers.
	maxTopics = 1 << 12
)

// A task is a schedule whose next ticks are to be stored.
type task struct {
	definition
	lease   time.Time
	timing  timing
	usable  bool // this process can compute its ticks
	crowded bool // more schedules are due to be taken than one call takes

	plan   plan
	seen   string // the cursor of the record; "" if the record is of another revision
	bodies []queue.Tick
	next   time.Time // when to take it again; zero: after the lease
	err    error     // why its ticks could not be stored
}

// storeTicks stores the next ticks of schedules. A schedule that fails does not delay the others; the errors are joined.
func (s *Scheduler) storeTicks(ctx context.Context, work []task) error {
	var batch []*task
	bytes := 0
	for _, t := range s.ready(ctx, work) {
		size, err := s.encode(t)
		if err != nil {
			t.err = err
			continue
		}
		if batch, bytes = append(batch, t), bytes+size; bytes >= portion {
			s.save(ctx, batch)
			batch, bytes = nil, 0
		}
	}
	s.save(ctx, batch)
	return s.done(ctx, work)
}

// ready returns the tasks that this process can do, with their plans.
func (s *Scheduler) ready(ctx context.Context, work []task) (ready []*task) {
	for i := range work {
		if work[i].usable = s.prepare(&work[i]); work[i].usable {
			ready = append(ready, &work[i])
		}
	}
	for _, part := range []func(context.Context, []*task){s.enlist, s.readStates} {
		limited, cancel := context.WithTimeout(ctx, s.limit(ctx))
		part(limited, ready)
		cancel()
		ready = slices.DeleteFunc(ready, func(t *task) bool { return t.err != nil })
	}
	return ready
}

// limit returns the time limit of one part: a third of the remaining time. So if one master hangs, there is time left to
// store the ticks of topics on other masters.
func (s *Scheduler) limit(ctx context.Context) time.Duration {
	if deadline, limited := ctx.Deadline(); limited {
		return time.Until(deadline) / 3
	}
	return s.roundTimeout
}

// done sets when the schedules are to be taken again. The error includes those of failed schedules.
func (s *Scheduler) done(ctx context.Context, work []task) error {
	var done []timetable.Next
	var errs []error
	for _, t := range work {
		if t.err != nil {
			errs = append(errs, fmt.Errorf("schedule %q: %w", t.ID, t.err))
			continue
		}
		// An unusable schedule keeps its lease while others wait to be taken; otherwise the next round would take it again.
		if !t.next.IsZero() && (t.usable || !t.crowded) {
			done = append(done, timetable.Next{Definition: timetable.Definition{ID: t.ID, Revision: t.revision, Lease: t.lease}, At: t.next})
		}
	}
	return errors.Join(append(errs, s.table.Done(ctx, done))...)
}

// prepare reports whether this process can store the ticks of a schedule. Otherwise it releases the schedule at once: a process of
// another version, or on another host, may be able to.
func (s *Scheduler) prepare(t *task) (usable bool) {
	if t.damage == nil && (t.Removed || t.Paused != nil) { // no ticks to compute or encode
		return true
	}
	err := t.damage
	if err == nil {
		t.timing, err = t.compile()
	}
	if err == nil {
		return true
	}
	t.next = t.upcoming
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision, logged := s.unusable[t.ID]; !logged || revision != t.revision {
		if len(s.unusable) >= maxTopics { // they are logged again
			clear(s.unusable)
		}
		s.unusable[t.ID] = t.revision
		s.logger.Error("Could not use a schedule", err, watermill.LogFields{"schedule": t.ID})
	}
	return false
}

// topic returns a topic, which remembers its partitions.
func (s *Scheduler) topic(name string) *queue.Topic {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.topics[name]
	if t == nil {
		if len(s.topics) >= maxTopics { // they are looked up again
			clear(s.topics)
		}
		t = s.store.Topic(name)
		s.topics[name] = t
	}
	return t
}

// enlist adds the topics to the list of topics. It fails for a topic with an unsupported stored format.
func (s *Scheduler) enlist(ctx context.Context, work []*task) {
	topics := map[string][]*task{}
	for _, t := range work {
		if !t.Removed {
			topics[t.Topic] = append(topics[t.Topic], t)
		}
	}
	var calls errgroup.Group
	calls.SetLimit(enlisters)
	for name, of := range topics {
		calls.Go(func() error {
			if err := s.topic(name).EnsureListed(ctx); err != nil {
				for _, t := range of {
					t.err = fmt.Errorf("topic %q: %w", name, err)
				}
			}
			return nil
		})
	}
	_ = calls.Wait() // each task has its own error
}

// readStates reads the records of the schedules from their topics, and makes the plans.
func (s *Scheduler) readStates(ctx context.Context, work []*task) {
	calls := make([]script.Call, len(work))
	for i, t := range work {
		calls[i] = s.topic(t.Topic).TickStateCall(t.ID)
	}
	for i, answer := range s.store.RunMany(ctx, calls) {
		t := work[i]
		known, err := queue.ReadTicked(answer)
		if err != nil {
			t.err = err
			continue
		}
		t.plan = t.planOf(t.timing, known.Record, known.Now)
		if known.Record.Revision == t.revision { // otherwise the first process that stores ticks replaces it
			t.seen = known.Record.Cursor
		}
	}
}

// encode encodes the messages of a plan, up to the limit of one call, and returns their size.
func (s *Scheduler) encode(t *task) (bytes int, err error) {
	for i, tick := range t.plan.ticks {
		body, err := s.body(t.definition, tick, t.expiration(tick))
		if err != nil {
			return 0, err
		}
		if i > 0 && bytes+len(body) > maxBytes {
			t.plan.cut(i)
			break
		}
		bytes += len(body)
		t.bodies = append(t.bodies, queue.Tick{
			Nominal: tick.Nominal, Due: tick.Nominal.Add(t.timing.delay), ID: t.idOf(tick.Nominal), Body: body,
		})
	}
	return bytes, nil
}

// expiration returns when a tick expires; zero for never.
func (t *task) expiration(tick Tick) time.Time {
	next := t.definition.next(t.timing, tick.Nominal)
	if t.Overlap != OverlapSkip || next.IsZero() {
		return time.Time{}
	}
	return next.Add(t.timing.delay)
}

// body returns the encoded message of a tick.
func (s *Scheduler) body(d definition, t Tick, expires time.Time) (body []byte, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("encode the message of %s: %w", t, &redisdelay.PanicError{Value: value, Stack: debug.Stack()})
		}
	}()
	body, err = s.config.Marshaler.Marshal(d.Topic, d.message(t, expires))
	if err == nil && len(body) > maxBytes {
		err = redisdelay.ErrMessageTooLarge
	}
	return body, err
}

// save stores the ticks.
func (s *Scheduler) save(ctx context.Context, work []*task) {
	calls := make([]script.Call, len(work))
	for i, t := range work {
		calls[i] = s.topic(t.Topic).TickCall(queue.Ticks{
			Schedule: t.ID, Revision: t.revision, Seen: t.seen, Cursor: t.plan.cursor, List: t.bodies,
		})
	}
	var changed []*task
	var changes []timetable.Change
	for i, answer := range s.store.RunMany(ctx, calls) {
		t := work[i]
		result, err := queue.ReadTicked(answer)
		switch {
		case err != nil:
			t.err = err
		case t.plan.cursor == queue.RemovalCursor:
			changed, changes = append(changed, t), append(changes, timetable.Change{ID: t.ID, Seen: t.revision})
		case !t.Removed && (result.Superseded || result.Lost):
			// Redis has lost the last definition or the record. A new revision continues, unless the definition has
			// changed meanwhile.
			changed, changes = append(changed, t), append(changes, t.resumed(result).change(t.definition))
		default:
			s.saved(t, result)
		}
		t.bodies = nil
	}
	if _, _, _, err := s.table.Set(ctx, timetable.Declaration{}, changes); err != nil {
		for _, t := range changed {
			t.err = err
		}
	}
}

// saved sets when to take a schedule again, and reports the stored ticks.
func (s *Scheduler) saved(t *task, result queue.Ticked) {
	if t.next = t.plan.next; !result.Stored && !t.Removed { // another process has stored some
		t.next = result.Now
		return
	}
	if report := s.config.Observer.Ticked; report != nil && len(t.bodies)+t.plan.missed > 0 {
		report(observe.Ticked{Topic: t.Topic, Schedule: t.ID, Stored: len(t.bodies), Missed: t.plan.missed})
	}
}

// resumed returns the definition with which ticks continue after Redis has lost the record or the last revision.
func (t *task) resumed(found queue.Ticked) definition {
	d, limit := t.definition, found.Now.Add(-t.timing.delay)
	d.Since, d.Resumed = limit.UnixMilli(), found.Lost
	if found.Superseded {
		d.Since = max(found.Record.Fired.UnixMilli(), t.since().UnixMilli())
		return d
	}
	for _, tick := range t.plan.ticks {
		if !tick.Nominal.After(limit) { // it is due, but the tick that was stored ahead is lost
			d.Since = tick.Nominal.UnixMilli() - 1
		}
	}
	return d
}
