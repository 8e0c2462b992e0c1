package redisdelay

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
)

// DelayError says that delay metadata of a message cannot be honoured.
type DelayError struct {
	Header string // delay.DelayedUntilKey or delay.DelayedForKey
	Value  string
	Err    error
}

func (e *DelayError) Error() string {
	return fmt.Sprintf("metadata %s: %q: %v", e.Header, e.Value, e.Err)
}

func (e *DelayError) Unwrap() error { return e.Err }

// delayHeaders are the delay metadata of a message.
type delayHeaders struct {
	until string // RFC 3339, cut off to whole seconds
	after string // a duration, exact, from when the delay was made
}

func headersOf(metadata message.Metadata) delayHeaders {
	return delayHeaders{until: metadata.Get(delay.DelayedUntilKey), after: metadata.Get(delay.DelayedForKey)}
}

// untouched tells whether these are the very headers that were delivered, not
// headers set since then, even if they read the same: a delay below a second that
// is made again within the second does.
func (h delayHeaders) untouched(delivered delayHeaders) bool {
	return sameString(h.until, delivered.until) && sameString(h.after, delivered.after)
}

// sameString tells whether two strings are one and the same, not just equal. The
// copy of a message shares its strings with the original, while metadata that are
// set anew are new strings.
func sameString(a, b string) bool {
	return a == b && (a == "" || unsafe.StringData(a) == unsafe.StringData(b))
}

// remaining is the time from now to the due time in milliseconds, rounded up;
// zero or less means that the message is due.
//
// Watermill cuts the time in until down to whole seconds and counts the duration
// in after from when the delay was made, so the due time T satisfies
// until <= T < until+1s and T <= now+after. The lesser bound is never early and
// is exact when the message is published at once. One header alone counts as
// written.
//
// No due time that can be written is too far away: RFC 3339 ends with the year
// 9999 and a duration with 292 years, and a sorted-set score holds either in
// milliseconds exactly.
func (h delayHeaders) remaining(now time.Time) (int64, error) {
	if h == (delayHeaders{}) {
		return 0, nil
	}
	fromUntil, err := h.fromUntil(now)
	if err != nil {
		return 0, err
	}
	fromAfter, err := h.fromAfter()
	if err != nil {
		return 0, err
	}
	switch {
	case h.until == "":
		return fromAfter, nil
	case h.after == "":
		return fromUntil, nil
	default:
		return min(fromUntil+1000, fromAfter), nil
	}
}

func (h delayHeaders) fromUntil(now time.Time) (int64, error) {
	if h.until == "" {
		return 0, nil
	}
	until, err := time.Parse(time.RFC3339, h.until)
	if err != nil {
		return 0, &DelayError{delay.DelayedUntilKey, h.until, err}
	}
	return ceilMilli(until) - now.UnixMilli(), nil
}

func (h delayHeaders) fromAfter() (int64, error) {
	if h.after == "" {
		return 0, nil
	}
	after, err := time.ParseDuration(h.after)
	if err != nil {
		return 0, &DelayError{delay.DelayedForKey, h.after, err}
	}
	return ceilDuration(after), nil
}

func ceilMilli(t time.Time) int64 {
	ms := t.UnixMilli()
	if time.UnixMilli(ms).Before(t) {
		ms++
	}
	return ms
}

// ceilDuration is a duration in milliseconds, rounded up.
func ceilDuration(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d > 0 && d%time.Millisecond != 0 {
		ms++
	}
	return ms
}
