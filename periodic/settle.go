package periodic

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/timetable"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

const (
	// stepIn is after what time a process stores ticks though its rules for the zone are not those of the definition:
	// nobody else does.
	stepIn = time.Minute

	// tryAgain is when a schedule is tried again whose message cannot be made.
	tryAgain = 30 * time.Second

	// maxBytes is how many bytes of messages one call stores.
	maxBytes = 4 << 20

	// portion is about how many bytes of messages are in memory at once.
	portion = 16 << 20

	// enlisters is how many topics are looked at at once.
	enlisters = 16
)

// A task is a schedule whose next ticks are to be stored.
type task struct {
	definition
	lease  time.Time
	timing timing
	ours   bool // this process stores its ticks

	crowded bool // more schedules are to be taken now than were taken with it

	plan   plan
	seen   string    // the cursor of the record; "" if that is of another revision
	next   time.Time // when to take it again; zero: when the lease ends
	bodies []queue.Tick

	// stopped says that some ticks of the plan have no body, and pause how long to wait before the next attempt.
	stopped bool
	pause   time.Duration

	elsewhere time.Time // the last nominal time that has fired in topics that it has left
	err       error     // why its ticks could not be stored
}

// settle stores the next ticks of schedules. What fails for one schedule holds up no other; the errors are joined.
func (p *Periodic) settle(ctx context.Context, work []task) error {
	ready := p.ready(ctx, work)
	for len(ready) > 0 {
		some := ready[:p.encodeSome(ctx, ready)]
		p.save(ctx, some)
		for _, t := range some {
			t.bodies = nil
		}
		ready = ready[len(some):]
	}
	return p.done(ctx, work)
}

// encodeSome makes the messages of the first tasks, and returns how many that are.
func (p *Periodic) encodeSome(ctx context.Context, work []*task) int {
	bytes := 0
	for i, t := range work {
		p.encode(ctx, t)
		for _, tick := range t.bodies {
			bytes += len(tick.Body)
		}
		if bytes >= portion {
			return i + 1
		}
	}
	return len(work)
}

// ready are the tasks that this process does, with their plans.
func (p *Periodic) ready(ctx context.Context, work []task) (ready []*task) {
	for i := range work {
		if work[i].ours = p.prepare(&work[i]); work[i].ours {
			ready = append(ready, &work[i])
		}
	}
	enlisting, cancel := p.part(ctx)
	defer cancel()
	p.enlist(enlisting, ready)
	ready = slices.DeleteFunc(ready, func(t *task) bool { return t.err != nil })
	looking, cancel := p.part(ctx)
	defer cancel()
	p.look(looking, ready)
	return ready
}

// part is for one of three parts of a round: a master that hangs must leave time for what others have answered.
func (p *Periodic) part(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, p.settleFor/3)
}

// done says when the schedules are to be taken again. The error is also that of those that could not be stored.
func (p *Periodic) done(ctx context.Context, work []task) error {
	var done []timetable.Next
	var errs []error
	for i := range work {
		t := &work[i]
		if t.err != nil {
			errs = append(errs, fmt.Errorf("schedule %q: %w", t.ID, t.err))
		}
		unusable := !t.ours && t.timing.zone == nil
		switch {
		case t.Made:
			p.remember(t)
		case t.next.IsZero():
		case unusable && t.crowded: // it keeps its lease: else it would be in the next page, too
		default:
			done = append(done, timetable.Next{Definition: timetable.Definition{ID: t.ID, Revision: t.revision, Lease: t.lease}, At: t.next})
		}
	}
	return errors.Join(append(errs, p.table.Done(ctx, done))...)
}

// remember notes when the ticks of a schedule are to be made again.
func (p *Periodic) remember(t *task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m, known := p.makers[t.ID]; known {
		m.revision, m.next, m.removed = t.revision, t.next, false
		soon := t.lease.Add(leaseFor)
		if m.next.IsZero() || !m.since.IsZero() && soon.Before(m.next) {
			m.next = soon
		}
		p.makers[t.ID] = m
	}
}

// prepare tells whether this process stores the ticks of a schedule. If it does not, it leaves it to the others.
func (p *Periodic) prepare(t *task) bool {
	if t.damage == nil && (t.Removed || t.Paused != nil) { // which takes no times and no message
		return true
	}
	err := t.damage
	if err == nil {
		t.timing, err = t.compile()
	}
	if err != nil { // a process of another version, or on another host, may have a use for it
		p.tell(t, err)
		t.next = t.upcoming
		return false
	}
	t.Make = p.makerOf(t.definition)
	if !t.Made && !t.agrees(t.timing.zone) && t.lease.Sub(t.upcoming) < leaseFor+stepIn {
		t.next = t.upcoming
		return false
	}
	return !t.Made || t.Make != nil
}

// tell logs, once, that a schedule is of no use here.
func (p *Periodic) tell(t *task, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if revision, told := p.told[t.ID]; told && revision == t.revision {
		return
	}
	p.told[t.ID] = t.revision
	p.logger.Error("Could not use a schedule", err, watermill.LogFields{"schedule": t.ID})
}

// makerOf is the function that makes the messages of a schedule; nil if it has none, or this process does not have it.
func (p *Periodic) makerOf(d definition) func(Tick) (*message.Message, error) {
	if !d.Made { // another process has replaced the one that this one knows
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.makers[d.ID].make
}

// topic is a topic that ticks go to.
func (p *Periodic) topic(name string) *queue.Topic {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.topics[name]
	if t == nil {
		t = p.store.Topic(name)
		p.topics[name] = t
	}
	return t
}

// enlist puts the topics on the list of topics, if this library may use them.
func (p *Periodic) enlist(ctx context.Context, work []*task) {
	topics := map[string][]*task{}
	for _, t := range work {
		if !t.Removed {
			topics[t.Topic] = append(topics[t.Topic], t)
		}
	}
	room := make(chan struct{}, enlisters)
	var calls sync.WaitGroup
	for name, of := range topics {
		room <- struct{}{}
		calls.Go(func() {
			defer func() { <-room }()
			if err := p.topic(name).Enlist(ctx); err != nil {
				for _, t := range of {
					t.err = fmt.Errorf("topic %q: %w", name, err)
				}
			}
		})
	}
	calls.Wait()
}

// look reads what the topics know, and plans what to store.
func (p *Periodic) look(ctx context.Context, work []*task) {
	calls := make([]script.Call, len(work))
	for i, t := range work {
		calls[i] = p.topic(t.Topic).TickLook(t.ID)
	}
	answers := p.store.RunMany(ctx, calls)
	p.leave(ctx, work)
	for i, t := range work {
		known, err := queue.ReadTicked(answers[i])
		if t.err = errors.Join(t.err, err); t.err != nil {
			continue
		}
		t.plan = t.planOf(t.timing, known.Record, t.elsewhere, known.Now)
		if t.Made && p.leaves(t, known.Record.Cursor, known.Now) {
			t.plan = plan{}
		}
		if known.Record.Revision == t.revision { // else the first call replaces it, and the others see that
			t.seen = known.Record.Cursor
		}
	}
}

// leaves tells whether this process leaves the ticks of a schedule with a function to others, since its rules for the zone are
// not those of the definition. Others that are alive store some, and so move the cursor, whenever half of what is ahead is over,
// and at the latest when the first that is missing is due.
func (p *Periodic) leaves(t *task, cursor string, now time.Time) bool {
	if t.timing.zone == nil || t.agrees(t.timing.zone) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m, known := p.makers[t.ID]
	if !known {
		return false
	}
	if len(t.plan.ticks) == 0 || m.since.IsZero() || m.cursor != cursor {
		m.cursor, m.since = cursor, now
		p.makers[t.ID] = m
	}
	if len(t.plan.ticks) == 0 {
		return false
	}
	first, last := t.plan.ticks[0].Nominal, t.plan.ticks[len(t.plan.ticks)-1].Nominal
	stored := min(t.StoreAhead, last.Add(t.timing.delay).Sub(now)) // less if there would be more than MaxAhead
	wait := max(0, min(stored/2, first.Add(t.timing.delay).Sub(m.since)))
	return now.Sub(m.since) < wait+stepIn
}

// leave takes away the ticks of schedules in topics that they have left, and notes what has fired there. It looks at all of
// them at once: a schedule remembers the topics for good, and most have nothing of it any more.
func (p *Periodic) leave(ctx context.Context, work []*task) {
	type departure struct {
		*task
		from *queue.Topic
	}
	var departures, pending []departure
	var looks, takes []script.Call
	for _, t := range work {
		for _, name := range t.Left {
			from := p.topic(name)
			departures, looks = append(departures, departure{t, from}), append(looks, from.TickLook(t.ID))
		}
	}
	for i, answer := range p.store.RunMany(ctx, looks) {
		d := departures[i]
		if record := d.note(answer); record.Revision != 0 && record.Revision < d.revision {
			pending = append(pending, d)
			takes = append(takes, d.from.TickCall(queue.Ticks{Schedule: d.ID, Revision: d.revision, Seen: record.Cursor, Cursor: "left"}))
		}
	}
	for i, answer := range p.store.RunMany(ctx, takes) {
		pending[i].note(answer)
	}
}

// note notes what a topic that the schedule has left knows of it.
func (t *task) note(answer script.Answer) queue.TickRecord {
	known, err := queue.ReadTicked(answer)
	t.err = errors.Join(t.err, err)
	if known.Record.Fired.After(t.elsewhere) {
		t.elsewhere = known.Record.Fired
	}
	return known.Record
}

// encode makes the messages of a plan. If one cannot be made, those before it are stored, and the schedule is tried again
// later.
func (p *Periodic) encode(ctx context.Context, t *task) {
	t.next = t.plan.next
	began, bytes := time.Now(), 0
	for _, tick := range t.plan.ticks {
		if ctx.Err() != nil || time.Since(began) > p.settleFor { // store what there is; the rest is planned anew
			t.stop(0)
			return
		}
		body, err := p.body(t.definition, tick)
		if err != nil {
			fields, panicked := watermill.LogFields{"schedule": t.ID}, (*redisdelay.PanicError)(nil)
			if errors.As(err, &panicked) {
				fields["stack"] = string(panicked.Stack)
			}
			p.logger.Error("Could not make a message of a schedule; trying again", err, fields)
			t.stop(tryAgain)
			return
		}
		if bytes += len(body); bytes > maxBytes && len(t.bodies) > 0 {
			t.stop(0)
			return
		}
		t.bodies = append(t.bodies, queue.Tick{
			Nominal: tick.Nominal, Due: tick.Nominal.Add(t.timing.delay), ID: t.idOf(tick.Nominal), Body: body,
		})
	}
}

// stop leaves the ticks that have no body yet to a later time: the cursor stays before them, and what was missed before the
// first one is told of with it.
func (t *task) stop(pause time.Duration) {
	t.stopped, t.pause = true, pause
	if n := len(t.bodies); n > 0 {
		t.plan.cursor = cursorOf(t.bodies[n-1].Nominal)
	} else {
		t.plan.cursor, t.plan.missed = t.plan.start, 0
	}
}

// body is the encoded message of a tick.
func (p *Periodic) body(d definition, t Tick) (body []byte, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("make the message of %s: %w", t, &redisdelay.PanicError{Value: value, Stack: debug.Stack()})
		}
	}()
	msg, err := d.message(t)
	if err != nil {
		return nil, err
	}
	for _, key := range reserved {
		delete(msg.Metadata, key)
	}
	body, err = p.config.Marshaler.Marshal(d.Topic, msg)
	if err == nil && len(body) > maxBytes {
		err = redisdelay.ErrMessageTooLarge
	}
	return body, err
}

// save stores the ticks.
func (p *Periodic) save(ctx context.Context, work []*task) {
	var calls []script.Call
	var of []*task
	for _, t := range work {
		if t.plan.cursor == "" {
			t.next = time.Time{}
			continue
		}
		calls = append(calls, p.topic(t.Topic).TickCall(queue.Ticks{
			Schedule: t.ID, Revision: t.revision, Seen: t.seen, Cursor: t.plan.cursor, List: t.bodies,
		}))
		of = append(of, t)
	}
	var over, changed []*task
	var changes []timetable.Change
	for i, answer := range p.store.RunMany(ctx, calls) {
		t := of[i]
		result, err := queue.ReadTicked(answer)
		switch {
		case err != nil:
			t.err, t.next = err, time.Time{}
		case t.Removed:
			if t.next = t.since().Add(forgetAfter); !t.next.After(result.Now) {
				over = append(over, t)
			}
		case result.Older || result.Lost:
			// Redis has lost the last definition, or the record: a new revision takes over. If the definition has changed
			// meanwhile, this changes nothing.
			changed, changes = append(changed, t), append(changes, t.resumed(result).change(t.definition))
		default:
			p.saved(t, result)
		}
	}
	p.forget(ctx, over)
	for _, t := range over {
		if t.err == nil {
			changed, changes = append(changed, t), append(changes, timetable.Change{ID: t.ID, Seen: t.revision, Was: t.Owner})
		}
	}
	_, _, _, err := p.table.Set(ctx, timetable.Declaration{}, changes)
	for _, t := range changed {
		t.err, t.next = err, time.Time{}
	}
}

// saved notes that the ticks of a schedule are stored.
func (p *Periodic) saved(t *task, result queue.Ticked) {
	switch {
	case !result.Stored: // another process has stored some
		t.next = result.Now
		return
	case t.stopped: // the pause begins now, however long the messages took
		t.next = result.Now.Add(t.pause)
	}
	if told := p.config.Observer.Ticked; told != nil && len(t.bodies)+t.plan.missed > 0 {
		told(observe.Ticked{Topic: t.Topic, Schedule: t.ID, Stored: len(t.bodies), Missed: t.plan.missed})
	}
}

// resumed is a definition whose record, or last revision, is lost: its ticks go on where they were, as far as that is known.
func (d definition) resumed(found queue.Ticked) definition {
	d.Make = nil
	d.Since = found.Now.UnixMilli()
	if found.Older {
		d.Since = max(found.Record.Fired.UnixMilli(), d.since().UnixMilli())
	}
	return d
}

// forget makes topics forget schedules that were removed so long ago that nobody can bring them back.
func (p *Periodic) forget(ctx context.Context, over []*task) {
	var calls []script.Call
	var of []*task
	for _, t := range over {
		seen := t.plan.cursor
		for _, name := range append([]string{t.Topic}, t.Left...) {
			calls = append(calls, p.topic(name).TickCall(queue.Ticks{Schedule: t.ID, Revision: t.revision, Seen: seen, Cursor: queue.Forget}))
			of, seen = append(of, t), "left" // as leave has written, unless there is no record
		}
	}
	for i, answer := range p.store.RunMany(ctx, calls) {
		if _, err := queue.ReadTicked(answer); err != nil {
			of[i].err, of[i].next = err, time.Time{}
		}
	}
}
