// Package cron computes the times of cron expressions in any time zone, through changes of daylight saving time.
//
// An expression is @every with a duration, @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually, or five fields:
// minute, hour, day of the month, month, day of the week. A field is a list, with commas, of:
//
//   - a number, such as 7. Months are 1 to 12 or JAN to DEC; days of the week are 0 to 7 or SUN to SAT, and 0 and 7 are Sunday
//   - a range, such as 9-17 or MON-FRI
//   - * or ? for all
//   - a step, such as */15, 9-17/2, or 5/15, which is each 15th from 5 on
//
// A fixed hour, such as 7 or 9-17, happens once on each civil day: if clocks are put forward past it, at the first
// instant after the gap; if they are put back, the first time. An hour with * or a step follows elapsed time: it
// happens whenever a clock shows it, so that hourly stays hourly. @every counts from the Unix epoch and has no zone.
package cron

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
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
	parsed, err := cron.ParseStandard(withoutSeven(text))
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

// withoutSeven writes the day of the week 7 as 0: the parser knows only that for Sunday.
func withoutSeven(text string) string {
	fields := strings.Fields(text)
	if len(fields) != 5 {
		return text
	}
	parts := strings.Split(fields[4], ",")
	for i, part := range parts {
		span, step, stepped := strings.Cut(part, "/")
		first, last, isRange := strings.Cut(span, "-")
		from, by := weekday(first), 1
		if stepped {
			by, _ = strconv.Atoi(step)
		}
		if !isRange {
			last = first
		}
		if weekday(last) != 7 || from < 0 || by < 1 {
			continue
		}
		var list []string
		for day := from; day <= 7; day += by {
			list = append(list, strconv.Itoa(day%7))
		}
		parts[i] = strings.Join(list, ",")
	}
	fields[4] = strings.Join(parts, ",")
	return strings.Join(fields, " ")
}

// weekday is the number of a day of the week; below 0 if it is none.
func weekday(text string) int {
	if n, is := number(text); is {
		return n
	}
	return slices.IndexFunc(days[:7], func(day string) bool { return strings.EqualFold(text, day[:3]) })
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
