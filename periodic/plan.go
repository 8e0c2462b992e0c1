package periodic

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

const (
	// maxStored is the maximum number of ticks of a schedule that one call stores.
	maxStored = 500

	// forgetAfter is how long a removed schedule is remembered, so that a process that hangs meanwhile cannot restore it.
	forgetAfter = 24 * time.Hour
)

// never is the next check of a schedule without further ticks: later than any due time.
var never = time.UnixMilli(1 << 52)

// A plan has the next ticks of a schedule to store.
type plan struct {
	ticks  []Tick
	cursor string    // the cursor after the last tick
	now    time.Time // when the plan was made
	next   time.Time // when the schedule must be checked again
	missed int       // missed ticks that are not stored
}

// planOf plans the next ticks. The plan depends only on the record of the topic and on Redis's clock.
func (d definition) planOf(t timing, record queue.TickRecord, now time.Time) plan {
	switch forgotten := d.defined().Add(forgetAfter); {
	case d.Removed && !forgotten.After(now) && (record.Revision == 0 || record.Revision == d.revision):
		return plan{cursor: queue.RemovalCursor, next: never}
	case d.Removed: // removes the pending ticks
		return plan{cursor: "none", next: forgotten}
	case d.Paused != nil:
		return plan{cursor: "none", next: never}
	}
	from, ahead := d.since().In(t.zone), []time.Time(nil)
	switch {
	case record.Revision == d.revision:
		from = cursorTime(record.Cursor, from)
		ahead = record.Ahead
	case record.Revision != 0: // continue where the last revision stopped
		from = latest(from, record.Fired, handled(record, now.Add(-t.delay))).In(t.zone)
	case !d.Resumed: // the schedule is new, or its topic was deleted, so earlier ticks may have been handled
		from = latest(from, d.defined().Add(-t.delay)).In(t.zone)
	}
	p := plan{cursor: cursorOf(from), now: now, next: never}
	p.addMissed(d, t, from, now)
	p.addAhead(d, t, ahead, now)
	return p
}

// handled returns the nominal time up to which a revision has delivered or dropped all ticks. limit is the last nominal
// time whose tick is due. A stored tick may be due later if an operator has rescheduled it.
func handled(record queue.TickRecord, limit time.Time) time.Time {
	until := cursorTime(record.Cursor, time.Time{})
	if until.After(limit) {
		until = limit
	}
	for _, nominal := range record.Ahead {
		if !nominal.After(until) {
			until = nominal.Add(-time.Millisecond)
		}
	}
	return until
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// cut keeps the first n ticks. The next round, which follows at once, stores the others.
func (p *plan) cut(n int) {
	p.ticks, p.cursor, p.next = p.ticks[:n], cursorOf(p.ticks[n-1].Nominal), p.now
}

// addMissed adds the ticks that make up for missed ones (CatchUp), and moves the cursor after the missed ticks.
func (p *plan) addMissed(d definition, t timing, from, now time.Time) {
	limit := now.Add(-t.delay) // the last nominal time whose tick is due
	next := d.next(t, cursorTime(p.cursor, from))
	if next.IsZero() || next.After(limit) {
		return
	}
	switch {
	case d.CatchUp > 0:
		oldest := limit.Add(-d.CatchUp)
		if next.Before(oldest) {
			before := oldest.Add(-time.Millisecond)
			p.missed = d.count(t, next, oldest)
			p.cursor = cursorOf(d.last(t, next, before)) // the period may have no tick
			next = d.next(t, before.In(t.zone))
		}
		for ; !next.IsZero() && !next.After(limit) && len(p.ticks) < maxStored; next = d.next(t, next) {
			p.add(d, next, 0)
		}
	case d.CatchUp == CatchUpNone:
		p.missed = d.count(t, next, limit.Add(time.Millisecond))
		p.cursor = cursorOf(d.last(t, next, limit))
	default:
		last := d.last(t, next, limit)
		p.missed = d.count(t, next, last)
		p.add(d, last, p.missed)
	}
}

// addAhead adds the ticks to store ahead, after those that are stored (before).
func (p *plan) addAhead(d definition, t timing, before []time.Time, now time.Time) {
	var coming []time.Time
	for _, nominal := range before {
		if nominal.Add(t.delay).After(now) {
			coming = append(coming, nominal)
		}
	}
	horizon := now.Add(d.StoreAhead - t.delay)
	at := cursorTime(p.cursor, now)
	for len(coming) < MaxTicksAhead {
		next := d.next(t, at)
		if next.IsZero() {
			return // the schedule has no more ticks
		}
		if len(coming) >= d.MinTicksAhead && next.After(horizon) {
			break
		}
		if len(p.ticks) == maxStored {
			p.next = now // continue at once
			return
		}
		p.add(d, next, 0)
		coming, at = append(coming, next), next
	}
	// Check again when fewer than MinTicksAhead are left, or half of the stored time has passed.
	last := coming[len(coming)-1].Add(t.delay)
	p.next = coming[max(len(coming)-d.MinTicksAhead, 0)].Add(t.delay)
	stored := d.StoreAhead
	if len(coming) == MaxTicksAhead { // they may cover less time
		stored = min(stored, last.Sub(now))
	}
	if half := last.Add(-stored / 2); half.Before(p.next) && half.After(now) {
		p.next = half
	}
}

func (p *plan) add(d definition, nominal time.Time, missed int) {
	p.ticks = append(p.ticks, Tick{Schedule: d.ID, Nominal: nominal, Version: d.Version, Origin: OriginSchedule, Missed: missed})
	p.cursor = cursorOf(nominal)
}

// next returns the next nominal time after a time; zero if there is none.
func (d definition) next(t timing, after time.Time) time.Time {
	if !d.Start.IsZero() && after.Before(d.Start) {
		after = d.Start.Add(-time.Millisecond).In(t.zone)
	}
	next := t.Next(after, t.zone)
	if !d.End.IsZero() && !next.Before(d.End) {
		return time.Time{}
	}
	return next
}

// count counts the nominal times in [from, until), up to MaxMissed. from is a nominal time.
func (d definition) count(t timing, from, until time.Time) int {
	n := 0
	for at := from; !at.IsZero() && at.Before(until) && n < MaxMissed; at = d.next(t, at) {
		n++
	}
	return n
}

// last returns the last nominal time in [from, limit]. from is a nominal time. It searches backwards from the limit.
func (d definition) last(t timing, from, limit time.Time) time.Time {
	last := from
	for back := time.Minute; ; back *= 8 {
		start := limit.Add(-back)
		if !start.After(from) {
			start = from.Add(-time.Millisecond)
		}
		first := d.next(t, start.In(t.zone))
		if first.IsZero() || first.After(limit) {
			if !start.After(from) {
				return last
			}
			continue
		}
		for at := first; !at.IsZero() && !at.After(limit); at = d.next(t, at) {
			last = at
		}
		return last
	}
}

// cursorOf returns the cursor of a nominal time: the time in ms, and its UTC offset in s. With the offset, a host with
// other rules for the time zone does not store a second tick for the same civil day.
func cursorOf(nominal time.Time) string {
	_, offset := nominal.Zone()
	return fmt.Sprintf("%d/%d", nominal.UnixMilli(), offset)
}

func cursorTime(cursor string, otherwise time.Time) time.Time {
	ms, offset, _ := strings.Cut(cursor, "/")
	at, err := strconv.ParseInt(ms, 10, 64)
	seconds, err2 := strconv.Atoi(offset)
	if err != nil || err2 != nil {
		return otherwise
	}
	return time.UnixMilli(at).In(time.FixedZone("", seconds))
}
