package redisdelay

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
)

var errTooLate = errors.New("it is more than 292 years from now")

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

// A delay that is over is marked in its headers, so that it does not count again when the
// message is published once more, by whatever way it gets there: the headers mean the same
// to who parses them, in a form that Watermill does not write. A delay made anew, by a
// handler or a middleware, overwrites them, and so is told apart even if it is the same.
const (
	overUntil     = "-00:00" // ends until, for UTC (RFC 3339, 4.3) instead of Z
	overAfter     = "+"      // begins for
	overAfterLess = "-0h"    // begins for, if it is negative
)

// honour marks the delay of a message that is delivered.
func honour(metadata message.Metadata) {
	headers := pendingHeaders(metadata)
	if less, negative := strings.CutPrefix(headers.after, "-"); negative {
		metadata.Set(delay.DelayedForKey, overAfterLess+less)
	} else if headers.after != "" {
		metadata.Set(delay.DelayedForKey, overAfter+headers.after)
	}
	if headers.until == "" {
		return
	}
	if until, err := time.Parse(time.RFC3339, headers.until); err == nil {
		headers.until = strings.TrimSuffix(until.UTC().Format(time.RFC3339Nano), "Z")
	}
	metadata.Set(delay.DelayedUntilKey, headers.until+overUntil)
}

// pendingHeaders are the delay metadata of a message without what is over.
func pendingHeaders(metadata message.Metadata) delayHeaders {
	headers := headersOf(metadata)
	if strings.HasSuffix(headers.until, overUntil) {
		headers.until = ""
	}
	if strings.HasPrefix(headers.after, overAfter) || strings.HasPrefix(headers.after, overAfterLess) {
		headers.after = ""
	}
	return headers
}

// remaining is the time from now to the due time; zero or less means that the message is
// due.
//
// Watermill cuts the time in until down to whole seconds and counts the duration
// in after from when the delay was made, so the due time T satisfies
// until <= T < until+1s and T <= now+after. The lesser bound is never early and
// is exact when the message is published at once. One header alone counts as
// written.
//
// A time.Duration ends after 292 years, and a later time is an error. Of the milliseconds
// until then, a sorted-set score holds each exactly.
func (h delayHeaders) remaining(now time.Time) (time.Duration, error) {
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
		return min(min(fromUntil, math.MaxInt64-time.Second)+time.Second, fromAfter), nil
	}
}

func (h delayHeaders) fromUntil(now time.Time) (time.Duration, error) {
	if h.until == "" {
		return 0, nil
	}
	until, err := time.Parse(time.RFC3339, h.until)
	if err != nil {
		return 0, &DelayError{delay.DelayedUntilKey, h.until, err}
	}
	remaining := until.Sub(now)
	if remaining == math.MaxInt64 { // Sub goes no further
		return 0, &DelayError{delay.DelayedUntilKey, h.until, errTooLate}
	}
	return remaining, nil
}

func (h delayHeaders) fromAfter() (time.Duration, error) {
	if h.after == "" {
		return 0, nil
	}
	after, err := time.ParseDuration(h.after)
	if err != nil {
		return 0, &DelayError{delay.DelayedForKey, h.after, err}
	}
	return after, nil
}
