package redisdelay

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
)

var errTooLate = errors.New("it is more than 292 years from now")

// DelayError is returned for an invalid delay.
type DelayError struct {
	Header string // delay.DelayedUntilKey or delay.DelayedForKey
	Value  string
	Err    error // for logs
}

func (e *DelayError) Error() string {
	return fmt.Sprintf("metadata %s: %q: %v", e.Header, e.Value, e.Err)
}

func (e *DelayError) Unwrap() error { return e.Err }

// delayHeaders is the delay metadata of a message.
type delayHeaders struct {
	until string // RFC 3339, truncated to whole seconds
	after string // a duration, exact, from when the delay was made
}

func headersOf(metadata message.Metadata) delayHeaders {
	return delayHeaders{until: metadata.Get(delay.DelayedUntilKey), after: metadata.Get(delay.DelayedForKey)}
}

// put makes these the delay metadata of a message.
func (h delayHeaders) put(metadata message.Metadata) {
	setOrDelete(metadata, delay.DelayedUntilKey, h.until)
	setOrDelete(metadata, delay.DelayedForKey, h.after)
}

func setOrDelete(metadata message.Metadata, name, value string) {
	if value == "" {
		delete(metadata, name)
	} else {
		metadata.Set(name, value)
	}
}

// remainingOf is the time from now to the end of a delay.
func remainingOf(to delay.Delay, now time.Time) (time.Duration, error) {
	carrier := message.NewMessage("", nil)
	delay.Message(carrier, to)
	return headersOf(carrier.Metadata).remaining(now)
}

// A delay that is over is marked in its headers, so that it does not count when the message is
// published again, by any route. The marks are forms that Watermill never writes:
//
//   - until still parses as the same time.
//   - for still parses as the same duration if the delay was made while handling: DelayOnError
//     grows the next one from it.
//   - for does not parse if the publisher gave the delay: DelayOnError starts with its
//     InitialInterval.
//
// A handler or middleware that sets a new delay overwrites the mark, so even an equal delay counts as new.
const (
	overUntil     = "-00:00" // ends until, for UTC (RFC 3339, 4.3) instead of Z
	overAfter     = "+"      // begins for
	overAfterLess = "-0h"    // begins for, if it is negative
	overPublished = "+ "     // begins for, if the publisher gave it
)

// markPublished marks a delay that the publisher gave.
func markPublished(after string) string { return overPublished + after }

// markMade marks a delay that was made while the message was handled.
func markMade(after string) string {
	if less, negative := strings.CutPrefix(after, "-"); negative {
		return overAfterLess + less
	}
	return overAfter + after
}

// markElapsed marks the delay of a delivered message as over.
func markElapsed(metadata message.Metadata, mark func(after string) string) {
	headers := pendingHeaders(metadata)
	if headers.after != "" {
		metadata.Set(delay.DelayedForKey, mark(headers.after))
	}
	if headers.until == "" {
		return
	}
	if until, err := time.Parse(time.RFC3339, headers.until); err == nil {
		headers.until = strings.TrimSuffix(until.UTC().Format(time.RFC3339Nano), "Z")
	}
	metadata.Set(delay.DelayedUntilKey, headers.until+overUntil)
}

// pendingHeaders is the delay metadata of a message without the delays that are over.
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
// Watermill truncates the time in until to whole seconds and counts the duration
// in after from when the delay was made, so the due time T satisfies
// until <= T < until+1s and T <= now+after. The smaller bound is never early and
// is exact when the message is published at once. One header alone counts as
// written.
//
// A time.Duration ends after 292 years, so a later time is an error. A sorted-set score
// holds every millisecond until then exactly.
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
	if remaining == math.MaxInt64 { // Sub saturates
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

// Backoff returns a SubscriberConfig.NackDelay that begins with initial, at least MinRedeliveryDelay, and grows by
// factor with each attempt up to longest, at least initial. A factor below 1, or NaN, counts as 1. Each delay is
// lengthened by up to half at random, but not beyond longest, so that messages that failed together are not retried
// together. The function is safe for concurrent use.
func Backoff(initial, longest time.Duration, factor float64) func(attempt int) time.Duration {
	initial = max(initial, MinRedeliveryDelay)
	longest = max(longest, initial)
	if !(factor >= 1) { // also of NaN
		factor = 1
	}
	return func(attempt int) time.Duration {
		step := longest
		if grown := float64(initial) * math.Pow(factor, float64(max(attempt, 1)-1)); grown < float64(longest) {
			step = time.Duration(grown)
		}
		return step + rand.N(min(step/2, longest-step)+1)
	}
}
