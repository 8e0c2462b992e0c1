// Package humanize reads what people write, and writes what they read: times, durations and
// numbers.
package humanize

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// WantDuration and WantTime say what ParseDuration and ParseTime accept.
const (
	WantDuration = `a duration such as 90s, 10m, 12h, 3d or 1w2d`
	WantTime     = `a duration such as 10m, in 3d or 2h ago, or a time such as 15:04, "2006-01-02 15:04" or 2006-01-02T15:04:05Z`
)

var (
	errDuration = errors.New("want " + WantDuration)
	errTime     = errors.New("want " + WantTime)
)

var longUnits = regexp.MustCompile(`^([-+]?)(?:(\d+)w)?(?:(\d+)d)?(.*)$`)

// ParseDuration is time.ParseDuration with days and weeks before the rest.
func ParseDuration(text string) (time.Duration, error) {
	m := longUnits.FindStringSubmatch(text)
	if m == nil || m[2] == "" && m[3] == "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			return 0, errDuration
		}
		return d, nil
	}
	days := 0
	for i, length := range []int{7, 1} {
		n, err := strconv.Atoi("0" + m[2+i])
		if err != nil || n > 100_000 {
			return 0, errDuration
		}
		days += n * length
	}
	var rest time.Duration
	if m[4] != "" {
		var err error
		if rest, err = time.ParseDuration(m[4]); err != nil || m[4][0] == '-' || m[4][0] == '+' {
			return 0, errDuration
		}
	}
	total := time.Duration(days)*24*time.Hour + rest
	if total < rest || days > 100_000 {
		return 0, errDuration
	}
	if m[1] == "-" {
		return -total, nil
	}
	return total, nil
}

// Direction says where the time is that a duration or a time of day means.
type Direction int

// The directions.
const (
	Ahead Direction = 1  // 10m is ten minutes from now, 15:04 is the next one
	Back  Direction = -1 // 10m is ten minutes ago, 15:04 is the last one
)

var layouts = []string{
	time.RFC3339Nano, "2006-01-02 15:04:05.999", "2006-01-02 15:04", "2006-01-02T15:04:05.999", "2006-01-02T15:04", "2006-01-02",
}

// ParseTime reads a time: "now", a duration from now, a time of day, or a date with or without one,
// in the zone of now unless it ends with " UTC". "2h ago" and "in 2h" mean the same in both directions.
func ParseTime(text string, now time.Time, direction Direction) (time.Time, error) {
	if d, err := parseDistance(text, direction); err == nil || text == "now" {
		return now.Add(d), nil
	}
	layouts := layouts
	if written, found := strings.CutSuffix(text, " UTC"); found {
		text, now, layouts = written, now.UTC(), layouts[1:] // the first has a zone
	}
	for _, layout := range layouts {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, nil
		}
	}
	for _, layout := range []string{"15:04", "15:04:05"} {
		t, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		at := time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), 0, now.Location())
		if (direction == Ahead) != at.After(now) {
			at = at.AddDate(0, 0, int(direction))
		}
		return at, nil
	}
	return time.Time{}, errTime
}

// parseDistance reads how far a time is from now; below 0 is before it.
func parseDistance(text string, direction Direction) (time.Duration, error) {
	if length, found := strings.CutSuffix(text, " ago"); found {
		text, direction = length, Back
	} else if length, found := strings.CutPrefix(text, "in "); found {
		text, direction = length, Ahead
	}
	d, err := ParseDuration(strings.TrimSpace(text))
	return time.Duration(direction) * d, err
}

// Duration writes a duration with its two largest units.
func Duration(d time.Duration) string {
	sign := ""
	if d < 0 {
		sign, d = "-", -d
	}
	switch {
	case d < time.Second:
		return fmt.Sprintf("%s%dms", sign, d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%s%ds", sign, int(d.Seconds()))
	case d < time.Hour:
		return sign + units(d, time.Minute, "m", time.Second, "s")
	case d < 24*time.Hour:
		return sign + units(d, time.Hour, "h", time.Minute, "m")
	case d < year:
		return sign + units(d, day, "d", time.Hour, "h")
	default:
		return sign + units(d, year, "y", day, "d")
	}
}

const (
	day  = 24 * time.Hour
	year = 365 * day
)

func units(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	text := fmt.Sprintf("%d%s", d/large, largeName)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf("%d%s", rest, smallName)
	}
	return text
}

// Relative writes a time as seen from now: "in 5m", "3h2m ago", "" for the zero time.
func Relative(t, now time.Time) string {
	switch d := t.Sub(now); {
	case t.IsZero():
		return ""
	case d > -time.Millisecond && d < time.Millisecond:
		return "now"
	case d > 0:
		return "in " + Duration(d)
	default:
		return Duration(-d) + " ago"
	}
}

// Absolute writes a time in the zone of now, without the date if it is today.
func Absolute(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	t = t.In(now.Location())
	if y, m, d := t.Date(); now.Year() == y && now.Month() == m && now.Day() == d {
		return t.Format("15:04:05.000")
	}
	return t.Format("2006-01-02 15:04:05")
}

// Full writes a time with milliseconds and zone, and how far it is from now.
func Full(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.In(now.Location()).Format("2006-01-02 15:04:05.000 MST") + " (" + Relative(t, now) + ")"
}
