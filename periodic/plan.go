package periodic

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

const (
	// maxStored is how many ticks one call stores.
	maxStored = 500

	// forgetAfter is how long a removed schedule is remembered, so that a process that was stopped meanwhile cannot bring it
	// back.
	forgetAfter = 24 * time.Hour
)

// never is when a schedule is checked that has nothing to do: later than any due time.
var never = time.UnixMilli(1 << 52)

// A plan is what is to be stored of a schedule.
type plan struct {
	ticks  []Tick
	cursor string    // the cursor behind them
	now    time.Time // when it was made
	next   time.Time // when the schedule must be checked again
	missed int       // ticks that are not made up for
}

// planOf plans what is to be stored, from what the topic knows and Redis's clock alone.
func (d definition) planOf(t timing, record queue.TickRecord, now time.Time) plan {
	switch forgotten := d.defined().Add(forgetAfter); {
	case d.Removed && !forgotten.After(now):
		return plan{cursor: queue.Forget, next: never}
	case d.Removed:
		return plan{cursor: "none", next: forgotten}
	case d.Paused != nil:
		return plan{cursor: "none", next: never}
	}
	from, ahead := d.since().In(t.zone), []time.Time(nil)
	switch {
	case record.Revision == d.revision:
		from = cursorTime(record.Cursor, from)
		ahead = record.Ahead
	case record.Revision != 0: // it goes on where the last revision has stopped
		if record.Fired.After(from) {
			from = record.Fired.In(t.zone)
		}
	default: // it is new, or the topic was deleted: what was before this revision may have been handled
		if defined := d.defined(); defined.After(from) {
			from = defined.In(t.zone)
		}
	}
	p := plan{cursor: cursorOf(from), now: now, next: never}
	p.from(d, t, from, now)
	p.ahead(d, t, ahead, now)
	return p
}

// cut leaves all but the first ticks to the next round, at once.
func (p *plan) cut(n int) {
	p.ticks, p.cursor, p.next = p.ticks[:n], cursorOf(p.ticks[n-1].Nominal), p.now
}

// from makes up for what was missed, and moves the cursor behind it.
func (p *plan) from(d definition, t timing, from, now time.Time) {
	limit := now.Add(-t.delay) // the last nominal time whose tick is due
	next := d.next(t, cursorTime(p.cursor, from))
	if next.IsZero() || next.After(limit) {
		return
	}
	switch {
	case d.CatchUp.within > 0:
		oldest := limit.Add(-d.CatchUp.within)
		if next.Before(oldest) {
			before := oldest.Add(-time.Millisecond)
			p.missed = d.count(t, next, oldest)
			p.cursor = cursorOf(d.last(t, next, before)) // there may be none within
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

// ahead stores what is to come.
func (p *plan) ahead(d definition, t timing, before []time.Time, now time.Time) {
	var coming []time.Time
	for _, nominal := range before {
		if nominal.Add(t.delay).After(now) {
			coming = append(coming, nominal)
		}
	}
	horizon := now.Add(d.StoreAhead - t.delay)
	at := cursorTime(p.cursor, now)
	for len(coming) < MaxAhead {
		next := d.next(t, at)
		if next.IsZero() {
			return // these are the last ticks
		}
		if len(coming) >= d.StoreAtLeast && next.After(horizon) {
			break
		}
		if len(p.ticks) == maxStored {
			p.next = now // go on at once
			return
		}
		p.add(d, next, 0)
		coming, at = append(coming, next), next
	}
	// Check again when there are too few, or half of the time is over.
	last := coming[len(coming)-1].Add(t.delay)
	p.next = coming[max(len(coming)-d.StoreAtLeast, 0)].Add(t.delay)
	stored := d.StoreAhead
	if len(coming) == MaxAhead { // which may be less
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

// next is the next nominal time after another one; zero if there is none.
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

// count is how many nominal times there are from one of them until another time, which is not included; MissedLimit at most.
func (d definition) count(t timing, from, until time.Time) int {
	n := 0
	for at := from; !at.IsZero() && at.Before(until) && n < MissedLimit; at = d.next(t, at) {
		n++
	}
	return n
}

// last is the last nominal time up to a limit, from one of them on. It looks near the limit first.
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

// A cursor is a nominal time, in ms, and what clocks were ahead of UTC then, in s: so a host with other rules for the zone
// finds no tick for a civil day that has had one.
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
