package redisdelay

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

func TestRemainingDelay(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 678_900_000, time.UTC)
	tests := map[string]struct {
		headers delayHeaders
		want    time.Duration
	}{
		"no delay":                         {delayHeaders{}, 0},
		"for alone":                        {delayHeaders{after: "1.5s"}, 1500 * time.Millisecond},
		"for to the nanosecond":            {delayHeaders{after: "37.000001ms"}, 37_000_001},
		"for in the past":                  {delayHeaders{after: "-5s"}, -5 * time.Second},
		"until alone counts as written":    {delayHeaders{until: "2026-01-02T03:04:07Z"}, 1_321_100 * time.Microsecond},
		"until in another zone":            {delayHeaders{until: "2026-01-02T04:04:07+01:00"}, 1_321_100 * time.Microsecond},
		"until with a fraction":            {delayHeaders{until: "2026-01-02T03:04:07.0000001Z"}, 1_321_100_100},
		"until in the past":                {delayHeaders{until: "2026-01-02T03:04:00Z"}, -5_678_900 * time.Microsecond},
		"for is exact when just made":      {delayHeaders{until: "2026-01-02T03:04:07Z", after: "1.5s"}, 1500 * time.Millisecond},
		"until bounds a for made long ago": {delayHeaders{until: "2026-01-02T03:04:07Z", after: "1h"}, 2_321_100 * time.Microsecond},
		"both in the past":                 {delayHeaders{until: "2026-01-02T03:04:00Z", after: "1h"}, -4_678_900 * time.Microsecond},
		"the zero Delay":                   {delayHeaders{until: "0001-01-01T00:00:00Z", after: "0s"}, math.MinInt64 + time.Second},
		"the longest duration":             {delayHeaders{after: time.Duration(math.MaxInt64).String()}, math.MaxInt64},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := test.headers.remaining(now)
			require.NoError(t, err)
			assert.Equal(t, test.want, got)
		})
	}
}

func TestRemainingDelayIsExactForWhatWatermillWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, d := range []time.Duration{1500 * time.Millisecond, 250 * time.Millisecond, 37 * time.Millisecond, time.Hour} {
			for name, made := range map[string]delay.Delay{"For": delay.For(d), "Until": delay.Until(time.Now().Add(d))} {
				msg := message.NewMessage("", nil)
				delay.Message(msg, made)
				remaining, err := headersOf(msg.Metadata).remaining(time.Now())
				require.NoError(t, err)
				assert.Equal(t, d, remaining, "%s(%s)", name, d)
			}
		}
	})
}

func TestMalformedDelayHeadersAreErrorsThatNameTheHeader(t *testing.T) {
	tests := map[string]struct {
		headers delayHeaders
		header  string
	}{
		"until is not a time":         {delayHeaders{until: "tomorrow"}, delay.DelayedUntilKey},
		"until has no zone":           {delayHeaders{until: "2026-01-02T03:04:05"}, delay.DelayedUntilKey},
		"until is a Unix time":        {delayHeaders{until: "1767323045"}, delay.DelayedUntilKey},
		"until is past the last year": {delayHeaders{until: "10000-01-01T00:00:00Z"}, delay.DelayedUntilKey},
		"until is too far away":       {delayHeaders{until: "9999-12-31T23:59:59Z"}, delay.DelayedUntilKey},
		"for is not a duration":       {delayHeaders{after: "soon"}, delay.DelayedForKey},
		"for has no unit":             {delayHeaders{after: "30"}, delay.DelayedForKey},
		"for is too long":             {delayHeaders{after: "3000000h"}, delay.DelayedForKey},
		"until is bad, for is good":   {delayHeaders{until: "x", after: "1s"}, delay.DelayedUntilKey},
		"for is bad, until is good":   {delayHeaders{until: "2026-01-02T03:04:05Z", after: "x"}, delay.DelayedForKey},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := test.headers.remaining(time.Now())
			var delayErr *DelayError
			require.ErrorAs(t, err, &delayErr)
			assert.Equal(t, test.header, delayErr.Header)
			assert.Contains(t, err.Error(), test.header)
		})
	}
}

func TestADelayThatIsOverReadsTheSameButNoLongerCounts(t *testing.T) {
	for _, headers := range []delayHeaders{
		{"2026-01-02T03:04:05Z", "30m0s"},
		{"2026-01-02T03:04:05+02:00", "1.5s"},
		{"2026-01-02T03:04:05.000Z", "10h"}, // as other programs may write them
		{"0001-01-01T00:00:00Z", "0s"},
		{"2026-01-02T03:04:05Z", "-5s"},
		{"", "250ms"},
		{"2026-01-02T03:04:05Z", ""},
		{"tomorrow", "soon"}, // from a publisher that does not check
	} {
		msg := message.NewMessage("", nil)
		if headers.until != "" {
			msg.Metadata.Set(delay.DelayedUntilKey, headers.until)
		}
		if headers.after != "" {
			msg.Metadata.Set(delay.DelayedForKey, headers.after)
		}
		require.Equal(t, headers, pendingHeaders(msg.Metadata), "not delivered yet")
		markElapsed(msg.Metadata, markMade)
		assert.Equal(t, delayHeaders{}, pendingHeaders(msg.Metadata), "%v", headers)
		once := msg.Metadata.Get(delay.DelayedUntilKey) + msg.Metadata.Get(delay.DelayedForKey)
		markElapsed(msg.Metadata, markMade)
		markElapsed(msg.Metadata, markPublished)
		assert.Equal(t, once, msg.Metadata.Get(delay.DelayedUntilKey)+msg.Metadata.Get(delay.DelayedForKey), "marked once")

		over := headersOf(msg.Metadata)
		if before, err := time.Parse(time.RFC3339, headers.until); err == nil {
			after, err := time.Parse(time.RFC3339, over.until)
			require.NoError(t, err)
			assert.True(t, before.Equal(after), "%v: %v", headers, over)
		}
		if before, err := time.ParseDuration(headers.after); err == nil {
			after, err := time.ParseDuration(over.after)
			require.NoError(t, err)
			assert.Equal(t, before, after, "%v: %v", headers, over)
		}
		delay.Message(msg, delay.For(time.Second))
		assert.Equal(t, headersOf(msg.Metadata), pendingHeaders(msg.Metadata), "a new delay counts")
	}
}

// TestADelayThatThePublisherGaveIsNoDurationOnceItIsOver to a parser: DelayOnError must not grow it.
func TestADelayThatThePublisherGaveIsNoDurationOnceItIsOver(t *testing.T) {
	for _, after := range []string{"30m0s", "0s", "-5s", "+1s", "-0h5s", "soon"} {
		metadata := message.Metadata{delay.DelayedForKey: after}
		pending := pendingHeaders(metadata) != delayHeaders{}
		markElapsed(metadata, markPublished)
		assert.Equal(t, delayHeaders{}, pendingHeaders(metadata), after)
		_, err := time.ParseDuration(metadata.Get(delay.DelayedForKey))
		assert.Equal(t, pending, err != nil, after)
		assert.Contains(t, metadata.Get(delay.DelayedForKey), after, "it can still be read")
	}
}

func TestOneNewHeaderCountsAlone(t *testing.T) {
	msg := message.NewMessage("", nil)
	delay.Message(msg, delay.For(time.Hour))
	markElapsed(msg.Metadata, markPublished)
	msg.Metadata.Set(delay.DelayedForKey, "5s")
	remaining, err := pendingHeaders(msg.Metadata).remaining(time.Now())
	require.NoError(t, err)
	assert.Equal(t, 5*time.Second, remaining)
}

// FuzzDelayHeaders checks that any headers give an error, or a due time that is no earlier
// than they allow and that a sorted-set score holds exactly.
func FuzzDelayHeaders(f *testing.F) {
	f.Add("2026-01-02T03:04:05Z", "1.5s")
	f.Add("9999-12-31T23:59:59-23:59", "2562047h47m16.854775807s")
	f.Add("0000-01-01T00:00:00Z", "-2562047h")
	f.Add("2026-01-02T03:04:05.999999999+14:00", "1ns")
	f.Add("tomorrow", "")
	f.Fuzz(func(t *testing.T, until, after string) {
		now := time.Now()
		remaining, err := delayHeaders{until, after}.remaining(now)
		if err != nil {
			return
		}
		due := now.Add(remaining)
		require.Equal(t, due.UnixMilli(), int64(float64(due.UnixMilli())))
		duration, err := time.ParseDuration(after)
		exact := now.Add(duration)
		if at, timeErr := time.Parse(time.RFC3339, until); timeErr == nil && (err != nil || at.Before(exact)) {
			exact = at
		}
		if until != "" || after != "" {
			require.False(t, due.Before(exact), "due %s, want no earlier than %s", due, exact)
		}
	})
}

func TestLatenessGoesByRedisClockWhateverThatOfTheHost(t *testing.T) {
	body, err := DefaultMarshaler{}.Marshal("t", message.NewMessage("a", nil))
	require.NoError(t, err)
	config := SubscriberConfig{LeaseDuration: 10 * time.Second, Unmarshaler: DefaultMarshaler{}}
	for name, offset := range map[string]time.Duration{"behind": -time.Hour, "ahead": time.Hour} {
		arrived := time.Now()
		leased := arrived.Add(offset) // by Redis's clock
		msg, _, err := (&codec{config: &config}).decode(t.Context(), queue.Claimed{
			Body: body, DueAt: leased.Add(-5 * time.Second), AnsweredAt: leased, LeasedUntil: leased.Add(10 * time.Second), ArrivedAt: arrived,
		})
		require.NoError(t, err)
		d, _ := DeliveryFromContext(msg.Context())
		late := d.Late()
		assert.GreaterOrEqual(t, late, 5*time.Second, name)
		assert.LessOrEqual(t, late, 5*time.Second+time.Since(arrived), name)
	}
	assert.Zero(t, Delivery{}.Late())
}
