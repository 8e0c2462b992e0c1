// Package cron computes the times of cron expressions in any time zone, through changes of daylight saving time.
//
// An expression has five fields (minute, hour, day of the month, month, day of the week), or is @hourly, @daily,
// @weekly, @monthly, @yearly, or @every with a duration.
//
// A fixed hour, such as 7 or 9-17, happens once on each civil day: if clocks are put forward past it, at the first
// instant after the gap; if they are put back, the first time. An hour with * or a step follows elapsed time: it
// happens whenever a clock shows it, so that hourly stays hourly. @every counts from the Unix epoch and has no zone.
package cron

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

const (
	// maxLength bounds an expression before it is parsed.
	maxLength = 256

	// minEvery is the shortest @every.
	minEvery = time.Second

	// horizon is how many years ahead a match is looked for: a leap day may be eight years away.
	horizon = 10
)

// ErrExpression is wrapped by the errors of Parse.
var ErrExpression = errors.New("bad cron expression")

// descriptors are names of common expressions.
var descriptors = map[string]string{
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
	"@monthly":  "0 0 1 * *",
	"@weekly":   "0 0 * * 0",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@hourly":   "0 * * * *",
}

// An Expression is a parsed cron expression. It is immutable.
type Expression struct {
	fields  *cron.SpecSchedule // on a clock without a zone; nil for @every
	elapsed bool               // whether the hour follows elapsed time
	every   time.Duration
}

// Parse parses an expression. An error wraps ErrExpression: the expression is too long, is not a cron expression, or never
// matches.
func Parse(text string) (Expression, error) {
	if len(text) > maxLength {
		return Expression{}, fmt.Errorf("%w: it has %d characters, and %d are allowed", ErrExpression, len(text), maxLength)
	}
	text = strings.TrimSpace(text)
	if every, found := strings.CutPrefix(text, "@every "); found {
		return parseEvery(strings.TrimSpace(every))
	}
	if fields, found := descriptors[text]; found {
		text = fields
	}
	if strings.Contains(text, "=") { // the parser takes CRON_TZ=
		return Expression{}, fmt.Errorf("%w %q: the time zone is not part of it", ErrExpression, text)
	}
	if strings.Contains(text, "*-") || strings.Contains(text, "?-") { // the parser skips what follows
		return Expression{}, fmt.Errorf("%w %q: a range cannot begin with * or ?", ErrExpression, text)
	}
	parsed, err := cron.ParseStandard(text)
	if err != nil {
		return Expression{}, fmt.Errorf("%w %q: %w", ErrExpression, text, err)
	}
	fields, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return Expression{}, fmt.Errorf("%w %q", ErrExpression, text)
	}
	fields.Location = time.UTC
	e := Expression{fields: fields, elapsed: strings.ContainsAny(strings.Fields(text)[1], "*?/")}
	if e.nextShown(time.Unix(0, 0).UTC()).IsZero() {
		return Expression{}, fmt.Errorf("%w %q: no day matches it", ErrExpression, text)
	}
	return e, nil
}

func parseEvery(text string) (Expression, error) {
	every, err := time.ParseDuration(text)
	if err == nil && (every < minEvery || every%time.Millisecond != 0) {
		err = fmt.Errorf("it must be whole milliseconds, and at least %s", minEvery)
	}
	if err != nil {
		return Expression{}, fmt.Errorf("%w @every %q: %w", ErrExpression, text, err)
	}
	return Expression{every: every}, nil
}

// Next returns the first match after a time; zero if there is none within ten years. after must have the offset of the zone: for
// a fixed hour, what clocks showed then is taken from after itself.
func (e Expression) Next(after time.Time, zone *time.Location) time.Time {
	switch {
	case e.every > 0:
		return e.nextEvery(after).In(zone)
	case e.fields == nil:
		return time.Time{}
	case e.elapsed:
		return e.nextElapsed(after, zone)
	default:
		return e.nextCivil(after, zone)
	}
}

func (e Expression) nextEvery(after time.Time) time.Time {
	every := e.every.Milliseconds()
	count := after.UnixMilli() / every
	if after.UnixMilli()%every < 0 { // before the epoch, division rounds up
		count--
	}
	return time.UnixMilli((count + 1) * every)
}

// nextCivil looks for the next match that clocks show, and then for when they show it. What they showed last comes from the
// offset of after, not from the rules of the zone: these may change between two calls, and still no civil day has a match twice.
// A later match never comes earlier, so only matches in a gap or an overlap are skipped.
func (e Expression) nextCivil(after time.Time, zone *time.Location) time.Time {
	for shown := e.nextShown(shownAt(after)); !shown.IsZero(); shown = e.nextShown(shown) {
		if t := firstShown(shown, zone); t.After(after) {
			return t.In(zone)
		}
	}
	return time.Time{}
}

// firstShown is when clocks of a zone first show a time or, if they never do, the first instant after the gap.
func firstShown(shown time.Time, zone *time.Location) time.Time {
	at := shown.Add(-48 * time.Hour) // earlier than any offset makes it
	for {
		local := at.In(zone)
		start, end := bounds(local)
		_, offset := local.Zone()
		t := shown.Add(-time.Duration(offset) * time.Second)
		switch {
		case !end.IsZero() && !t.Before(end):
			at = end
		case t.Before(start):
			return start
		default:
			return t
		}
	}
}

// nextElapsed looks for a match in the time that is left until the zone's offset changes, then in the time until it
// changes again, and so on.
func (e Expression) nextElapsed(after time.Time, zone *time.Location) time.Time {
	limit := after.AddDate(horizon, 0, 0)
	for from := after; from.Before(limit); {
		local := from.In(zone)
		_, end := bounds(local)
		_, offset := local.Zone()
		shown := e.nextShown(shownAt(local))
		t := shown.Add(-time.Duration(offset) * time.Second)
		if !shown.IsZero() && (end.IsZero() || t.Before(end)) {
			return t.In(zone)
		}
		if end.IsZero() {
			break
		}
		if e.matches(shownAt(end.In(zone))) {
			return end.In(zone)
		}
		from = end
	}
	return time.Time{}
}

// bounds is from when until when the offset of a zone is that of a time. Of the last day of a leap year whose rules are
// extrapolated, ZoneBounds returns an end that is not after it (time.tzset gives each year 365 days): there, the end is that
// of the year.
func bounds(local time.Time) (start, end time.Time) {
	start, end = local.ZoneBounds()
	if !end.IsZero() && !end.After(local) {
		end = time.Date(local.UTC().Year()+1, 1, 1, 0, 0, 0, 0, time.UTC).In(local.Location())
	}
	return start, end
}

// Rules tells the rules of a zone for the coming years apart from others. Redis has it for each schedule, so it must not change. Only
// changes of the offset count: a file of zones may name other times, too (zic -b fat).
func Rules(zone *time.Location, from time.Time) string {
	h := fnv.New64a()
	at := time.Date(from.UTC().Year(), 1, 1, 0, 0, 0, 0, time.UTC).In(zone)
	limit := at.AddDate(3, 0, 0)
	for last := -1; !at.IsZero() && at.Before(limit); _, at = bounds(at) {
		if _, offset := at.Zone(); offset != last {
			_, _ = fmt.Fprintf(h, "%d %d;", at.Unix(), offset) // never fails
			last = offset
		}
	}
	return fmt.Sprintf("%d.%x", from.UTC().Year(), h.Sum64())
}

// shownAt is what a clock shows, as a time in UTC.
func shownAt(local time.Time) time.Time {
	_, offset := local.Zone()
	return local.UTC().Add(time.Duration(offset) * time.Second)
}

func (e Expression) matches(shown time.Time) bool {
	return e.nextShown(shown.Add(-time.Second)).Equal(shown)
}

// nextShown is what a clock shows at the next match after it has shown another time; zero if there is none.
func (e Expression) nextShown(shown time.Time) time.Time {
	for range horizon/6 + 1 { // the parser's Next looks to the end of the fifth year
		if next := e.fields.Next(shown); !next.IsZero() {
			return next
		}
		shown = time.Date(shown.Year()+6, 1, 1, 0, 0, 0, 0, time.UTC).Add(-time.Second)
	}
	return time.Time{}
}
