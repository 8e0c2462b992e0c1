package admin

import (
	"fmt"
	"strings"
	"time"
)

// short is a duration for people, in its two largest units.
func short(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return units(d, 24*time.Hour, "d", time.Hour, "h")
	case d >= time.Hour:
		return units(d, time.Hour, "h", time.Minute, "m")
	case d >= time.Minute:
		return units(d, time.Minute, "m", time.Second, "s")
	case d >= time.Second:
		return fmt.Sprintf("%ds", d/time.Second)
	default:
		return fmt.Sprintf("%dms", d/time.Millisecond)
	}
}

func units(d, large time.Duration, name string, small time.Duration, smaller string) string {
	if rest := d % large / small; rest > 0 {
		return fmt.Sprintf("%d%s%d%s", d/large, name, rest, smaller)
	}
	return fmt.Sprintf("%d%s", d/large, name)
}

// clock is a time of day, with its date if that is not the message's day.
func (e *explainer) clock(t time.Time) string {
	t, now := t.Local(), e.message.At.Local()
	text := t.Format("15:04:05")
	text = strings.TrimSuffix(text, ":00")
	if t.Format(time.DateOnly) != now.Format(time.DateOnly) {
		text = t.Format(time.DateOnly) + " " + text
	}
	return text
}

// amount is a number of things: "1 message", "2 messages".
func amount(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// join says what is the case, and why: the reason, or else another.
func join(what, why, otherwise string) string {
	if why == "" {
		why = otherwise
	}
	if why == "" {
		return what
	}
	return what + "; " + why
}
