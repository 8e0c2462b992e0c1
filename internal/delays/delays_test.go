package delays

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRemainingDelay(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 678_900_000, time.UTC)
	tests := map[string]struct {
		meta Metadata
		want time.Duration
	}{
		"no delay":                         {Metadata{}, 0},
		"for alone":                        {Metadata{After: "1.5s"}, 1500 * time.Millisecond},
		"for to the nanosecond":            {Metadata{After: "37.000001ms"}, 37_000_001},
		"for in the past":                  {Metadata{After: "-5s"}, -5 * time.Second},
		"until alone counts as written":    {Metadata{Until: "2026-01-02T03:04:07Z"}, 1_321_100 * time.Microsecond},
		"until in another zone":            {Metadata{Until: "2026-01-02T04:04:07+01:00"}, 1_321_100 * time.Microsecond},
		"until with a fraction":            {Metadata{Until: "2026-01-02T03:04:07.0000001Z"}, 1_321_100_100},
		"until in the past":                {Metadata{Until: "2026-01-02T03:04:00Z"}, -5_678_900 * time.Microsecond},
		"for is exact when just made":      {Metadata{Until: "2026-01-02T03:04:07Z", After: "1.5s"}, 1500 * time.Millisecond},
		"until bounds a for made long ago": {Metadata{Until: "2026-01-02T03:04:07Z", After: "1h"}, 2_321_100 * time.Microsecond},
		"both in the past":                 {Metadata{Until: "2026-01-02T03:04:00Z", After: "1h"}, -4_678_900 * time.Microsecond},
		"the zero Delay":                   {Metadata{Until: "0001-01-01T00:00:00Z", After: "0s"}, math.MinInt64 + time.Second},
		"the longest duration":             {Metadata{After: time.Duration(math.MaxInt64).String()}, math.MaxInt64},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := test.meta.Remaining(now)
			require.NoError(t, err)
			assert.Equal(t, test.want, got)
		})
	}
}

func TestRemainingDelayIsExactForWatermillHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, d := range []time.Duration{1500 * time.Millisecond, 250 * time.Millisecond, 37 * time.Millisecond, time.Hour} {
			for name, made := range map[string]delay.Delay{"For": delay.For(d), "Until": delay.Until(time.Now().Add(d))} {
				msg := message.NewMessage("", nil)
				delay.Message(msg, made)
				remaining, err := Of(msg.Metadata).Remaining(time.Now())
				require.NoError(t, err)
				assert.Equal(t, d, remaining, "%s(%s)", name, d)
			}
		}
	})
}

func TestMalformedMetadataIsAnErrorThatNamesTheKey(t *testing.T) {
	tests := map[string]struct {
		meta Metadata
		key  string
	}{
		"until is not a time":         {Metadata{Until: "tomorrow"}, delay.DelayedUntilKey},
		"until has no zone":           {Metadata{Until: "2026-01-02T03:04:05"}, delay.DelayedUntilKey},
		"until is a Unix time":        {Metadata{Until: "1767323045"}, delay.DelayedUntilKey},
		"until is past the last year": {Metadata{Until: "10000-01-01T00:00:00Z"}, delay.DelayedUntilKey},
		"until is too far away":       {Metadata{Until: "9999-12-31T23:59:59Z"}, delay.DelayedUntilKey},
		"for is not a duration":       {Metadata{After: "soon"}, delay.DelayedForKey},
		"for has no unit":             {Metadata{After: "30"}, delay.DelayedForKey},
		"for is too long":             {Metadata{After: "3000000h"}, delay.DelayedForKey},
		"until is bad, for is good":   {Metadata{Until: "x", After: "1s"}, delay.DelayedUntilKey},
		"for is bad, until is good":   {Metadata{Until: "2026-01-02T03:04:05Z", After: "x"}, delay.DelayedForKey},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := test.meta.Remaining(time.Now())
			var delayErr *Error
			require.ErrorAs(t, err, &delayErr)
			assert.Equal(t, test.key, delayErr.MetadataKey)
			assert.Contains(t, err.Error(), test.key)
		})
	}
}

func TestAnElapsedDelayStaysReadableButIsNotPending(t *testing.T) {
	for _, meta := range []Metadata{
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
		if meta.Until != "" {
			msg.Metadata.Set(delay.DelayedUntilKey, meta.Until)
		}
		if meta.After != "" {
			msg.Metadata.Set(delay.DelayedForKey, meta.After)
		}
		require.Equal(t, meta, Pending(msg.Metadata), "not delivered yet")
		MarkElapsed(msg.Metadata, AsMade)
		assert.Equal(t, Metadata{}, Pending(msg.Metadata), "%v", meta)
		once := msg.Metadata.Get(delay.DelayedUntilKey) + msg.Metadata.Get(delay.DelayedForKey)
		MarkElapsed(msg.Metadata, AsMade)
		MarkElapsed(msg.Metadata, AsPublished)
		assert.Equal(t, once, msg.Metadata.Get(delay.DelayedUntilKey)+msg.Metadata.Get(delay.DelayedForKey), "marked once")

		over := Of(msg.Metadata)
		if before, err := time.Parse(time.RFC3339, meta.Until); err == nil {
			after, err := time.Parse(time.RFC3339, over.Until)
			require.NoError(t, err)
			assert.True(t, before.Equal(after), "%v: %v", meta, over)
		}
		if before, err := time.ParseDuration(meta.After); err == nil {
			after, err := time.ParseDuration(over.After)
			require.NoError(t, err)
			assert.Equal(t, before, after, "%v: %v", meta, over)
		}
		delay.Message(msg, delay.For(time.Second))
		assert.Equal(t, Of(msg.Metadata), Pending(msg.Metadata), "a new delay counts")
	}
}

// TestAnElapsedPublisherDelayNoLongerParses, so DelayOnError does not increase it.
func TestAnElapsedPublisherDelayNoLongerParses(t *testing.T) {
	for _, after := range []string{"30m0s", "0s", "-5s", "+1s", "-0h5s", "soon"} {
		metadata := message.Metadata{delay.DelayedForKey: after}
		pending := Pending(metadata) != Metadata{}
		MarkElapsed(metadata, AsPublished)
		assert.Equal(t, Metadata{}, Pending(metadata), after)
		_, err := time.ParseDuration(metadata.Get(delay.DelayedForKey))
		assert.Equal(t, pending, err != nil, after)
		assert.Contains(t, metadata.Get(delay.DelayedForKey), after, "it can still be read")
	}
}

func TestANewHeaderOverridesAnElapsedDelay(t *testing.T) {
	msg := message.NewMessage("", nil)
	delay.Message(msg, delay.For(time.Hour))
	MarkElapsed(msg.Metadata, AsPublished)
	msg.Metadata.Set(delay.DelayedForKey, "5s")
	remaining, err := Pending(msg.Metadata).Remaining(time.Now())
	require.NoError(t, err)
	assert.Equal(t, 5*time.Second, remaining)
}

// FuzzMetadata checks that any metadata gives an error, or a due time that is no earlier
// than they allow and that a sorted-set score holds exactly.
func FuzzMetadata(f *testing.F) {
	f.Add("2026-01-02T03:04:05Z", "1.5s")
	f.Add("9999-12-31T23:59:59-23:59", "2562047h47m16.854775807s")
	f.Add("0000-01-01T00:00:00Z", "-2562047h")
	f.Add("2026-01-02T03:04:05.999999999+14:00", "1ns")
	f.Add("tomorrow", "")
	f.Fuzz(func(t *testing.T, until, after string) {
		now := time.Now()
		remaining, err := Metadata{until, after}.Remaining(now)
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

func TestRemainingOfADelay(t *testing.T) {
	now := time.Now()
	for _, test := range []struct {
		to   delay.Delay
		want time.Duration
	}{
		{delay.For(time.Hour), time.Hour},
		{delay.For(-time.Hour), -time.Hour},
		{delay.Until(now.Add(time.Minute)), time.Minute},
		{delay.Delay{}, math.MinInt64},
	} {
		got, err := Remaining(test.to, now)
		require.NoError(t, err)
		assert.InDelta(t, test.want.Seconds(), got.Seconds(), 30, "%v", test.to)
	}
}

func TestMarkMadeLetsDelayOnErrorGrowADelayOfThePublisher(t *testing.T) {
	for after, want := range map[string]string{"5s": "+5s", "-5s": "-0h5s"} {
		metadata := message.Metadata{delay.DelayedForKey: after}
		MarkMade(metadata)
		assert.Equal(t, after, metadata.Get(delay.DelayedForKey), "it is not over")
		MarkElapsed(metadata, AsPublished)
		MarkMade(metadata)
		assert.Equal(t, want, metadata.Get(delay.DelayedForKey))
	}
}
