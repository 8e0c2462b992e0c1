// Package delays reads the delay metadata of Watermill, and marks delays that are over.
package delays

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
)

// Error is returned for invalid delay metadata.
type Error struct {
	MetadataKey, Value string
	Err                error
}

func (e *Error) Error() string {
	return fmt.Sprintf("metadata %s: %q: %v", e.MetadataKey, e.Value, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

var errTooLate = errors.New("it is more than 292 years from now")

// Metadata is the delay metadata of a message.
type Metadata struct {
	Until string // RFC 3339, truncated to whole seconds
	After string // a duration, exact, from when the delay was made
}

// Of returns the delay metadata of a message.
func Of(metadata message.Metadata) Metadata {
	return Metadata{Until: metadata.Get(delay.DelayedUntilKey), After: metadata.Get(delay.DelayedForKey)}
}

// Put replaces the delay metadata of a message.
func (m Metadata) Put(metadata message.Metadata) {
	setOrDelete(metadata, delay.DelayedUntilKey, m.Until)
	setOrDelete(metadata, delay.DelayedForKey, m.After)
}

func setOrDelete(metadata message.Metadata, name, value string) {
	if value == "" {
		delete(metadata, name)
	} else {
		metadata.Set(name, value)
	}
}

// A delay that is over is marked in its metadata, so that it does not count when the message is
// published again, by any route. The marks are forms that Watermill never writes:
//
//   - Until still parses as the same time.
//   - After still parses as the same duration if the delay was made while handling, because
//     DelayOnError derives the next delay from it.
//   - After does not parse if the publisher gave the delay, so that DelayOnError starts with its
//     InitialInterval.
//
// A handler or middleware that sets a new delay overwrites the mark, so even an equal delay counts as new.
const (
	overUntil     = "-00:00" // ends Until, for UTC (RFC 3339, 4.3) instead of Z
	overAfter     = "+"      // begins After
	overAfterLess = "-0h"    // begins After, if it is negative
	overPublished = "+ "     // begins After, if the publisher gave it
)

// AsPublished marks a duration that the publisher gave.
func AsPublished(after string) string { return overPublished + after }

// AsMade marks a duration that was made while the message was handled.
func AsMade(after string) string {
	if less, negative := strings.CutPrefix(after, "-"); negative {
		return overAfterLess + less
	}
	return overAfter + after
}

// MarkElapsed marks the delay of a delivered message as over.
func MarkElapsed(metadata message.Metadata, mark func(after string) string) {
	meta := Pending(metadata)
	if meta.After != "" {
		metadata.Set(delay.DelayedForKey, mark(meta.After))
	}
	if meta.Until == "" {
		return
	}
	if until, err := time.Parse(time.RFC3339, meta.Until); err == nil {
		meta.Until = strings.TrimSuffix(until.UTC().Format(time.RFC3339Nano), "Z")
	}
	metadata.Set(delay.DelayedUntilKey, meta.Until+overUntil)
}

// MarkMade changes the mark of a publisher's delay into that of a delay made while handling, so that DelayOnError
// derives the next delay from it.
func MarkMade(metadata message.Metadata) {
	if after, given := strings.CutPrefix(metadata.Get(delay.DelayedForKey), overPublished); given {
		metadata.Set(delay.DelayedForKey, AsMade(after))
	}
}

// Pending returns the delay metadata of a message without the delays that are over.
func Pending(metadata message.Metadata) Metadata {
	meta := Of(metadata)
	if strings.HasSuffix(meta.Until, overUntil) {
		meta.Until = ""
	}
	if strings.HasPrefix(meta.After, overAfter) || strings.HasPrefix(meta.After, overAfterLess) {
		meta.After = ""
	}
	return meta
}

// Remaining returns the time from now to the end of a delay.
func Remaining(to delay.Delay, now time.Time) (time.Duration, error) {
	carrier := message.NewMessage("", nil)
	delay.Message(carrier, to)
	return Of(carrier.Metadata).Remaining(now)
}

// Remaining returns the time from now to the due time. Zero or less means that the message is due. The error is an
// *Error.
//
// Watermill truncates the time in Until to whole seconds and counts the duration
// in After from when the delay was made, so the due time T satisfies
// Until <= T < Until+1s and T <= now+After. The smaller bound is never early and
// is exact when the message is published at once. One entry alone counts as
// written.
//
// A time.Duration ends after 292 years, so a later time is an error. A sorted-set score
// holds every millisecond until then exactly.
func (m Metadata) Remaining(now time.Time) (time.Duration, error) {
	if m == (Metadata{}) {
		return 0, nil
	}
	fromUntil, err := m.fromUntil(now)
	if err != nil {
		return 0, err
	}
	fromAfter, err := m.fromAfter()
	if err != nil {
		return 0, err
	}
	switch {
	case m.Until == "":
		return fromAfter, nil
	case m.After == "":
		return fromUntil, nil
	default:
		return min(min(fromUntil, math.MaxInt64-time.Second)+time.Second, fromAfter), nil
	}
}

func (m Metadata) fromUntil(now time.Time) (time.Duration, error) {
	if m.Until == "" {
		return 0, nil
	}
	until, err := time.Parse(time.RFC3339, m.Until)
	if err != nil {
		return 0, &Error{delay.DelayedUntilKey, m.Until, err}
	}
	remaining := until.Sub(now)
	if remaining == math.MaxInt64 { // Sub saturates
		return 0, &Error{delay.DelayedUntilKey, m.Until, errTooLate}
	}
	return remaining, nil
}

func (m Metadata) fromAfter() (time.Duration, error) {
	if m.After == "" {
		return 0, nil
	}
	after, err := time.ParseDuration(m.After)
	if err != nil {
		return 0, &Error{delay.DelayedForKey, m.After, err}
	}
	return after, nil
}
