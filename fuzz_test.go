package redisdelay

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzDelayHeaders reads any headers: an error, or a due time that is no earlier
// than the headers allow and that a sorted-set score holds exactly.
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
		if latest := now.Add(math.MaxInt64); exact.After(latest) {
			exact = latest
		}
		if until != "" || after != "" {
			require.False(t, due.Before(exact), "due %s, want no earlier than %s", due, exact)
		}
	})
}
