package humanize

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var now = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func TestParseDuration(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "1.5h": 90 * time.Minute, "3d": 3 * day, "1w": 7 * day, "1w1d": 8 * day,
		"2w2d": 16 * day, "1d12h": 36 * time.Hour, "-10m": -10 * time.Minute, "-1d1h": -25 * time.Hour, "0s": 0,
		"36500d": 36500 * day,
	} {
		got, err := ParseDuration(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "5", "d", "1d-1h", "1d5", "soon", "1y", "9999999999d", "200000d", "99999w"} {
		_, err := ParseDuration(text)
		assert.ErrorContains(t, err, WantDuration, text)
	}
}

func TestParseTime(t *testing.T) {
	for _, c := range []struct {
		text      string
		direction Direction
		want      time.Time
	}{
		{"10m", Ahead, now.Add(10 * time.Minute)},
		{"10m", Back, now.Add(-10 * time.Minute)},
		{"-10m", Ahead, now.Add(-10 * time.Minute)},
		{"10m ago", Ahead, now.Add(-10 * time.Minute)},
		{"10m ago", Back, now.Add(-10 * time.Minute)},
		{"in 1d", Back, now.Add(24 * time.Hour)},
		{"in 1d", Ahead, now.Add(24 * time.Hour)},
		{"12:30", Ahead, now.Add(30 * time.Minute)},
		{"12:30", Back, now.Add(30*time.Minute - 24*time.Hour)},
		{"11:30:15", Ahead, now.Add(24*time.Hour - 29*time.Minute - 45*time.Second)},
		{"11:30", Back, now.Add(-30 * time.Minute)},
		{"2026-03-05", Ahead, now.Add(12 * time.Hour)},
		{"2026-03-04 13:00", Back, now.Add(time.Hour)},
		{"2026-03-04T13:00:00.250", Ahead, now.Add(time.Hour + 250*time.Millisecond)},
		{"2026-03-04T13:00:00+01:00", Ahead, now},
		{"now", Back, now},
	} {
		got, err := ParseTime(c.text, now, c.direction)
		require.NoError(t, err, c.text)
		assert.True(t, c.want.Equal(got), "%s: got %s, want %s", c.text, got, c.want)
	}
	for _, text := range []string{"", " ago", "in ", "in 2h ago", "tomorrow", "25:00", "2026-13-01", "1234"} {
		_, err := ParseTime(text, now, Ahead)
		assert.ErrorContains(t, err, WantTime, text)
	}
}

// TestParseTimeAcceptsUTC whatever the reader's time zone is.
func TestParseTimeAcceptsUTC(t *testing.T) {
	here := now.In(time.FixedZone("here", 5*60*60)) // 17:00
	for text, want := range map[string]time.Time{
		"13:00": now.Add(20 * time.Hour), "13:00 UTC": now.Add(time.Hour), "2026-03-04 13:00 UTC": now.Add(time.Hour),
		"2026-03-05 UTC": now.Add(12 * time.Hour),
	} {
		got, err := ParseTime(text, here, Ahead)
		require.NoError(t, err, text)
		assert.True(t, want.Equal(got), "%s: got %s, want %s", text, got, want)
	}
	for _, text := range []string{"UTC", " UTC", "10m UTC", "13:00 CET", "2026-03-04T13:00:00+01:00 UTC"} {
		_, err := ParseTime(text, here, Ahead)
		assert.ErrorContains(t, err, WantTime, text)
	}
}

func TestTimeFormatting(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0ms", 350 * time.Millisecond: "350ms", 12900 * time.Millisecond: "12s", 90 * time.Second: "1m30s",
		time.Hour: "1h", 3*time.Hour + 2*time.Minute + time.Second: "3h2m", 25 * time.Hour: "1d1h",
		400 * 24 * time.Hour: "1y35d", -90 * time.Second: "-1m30s",
	} {
		assert.Equal(t, want, Duration(d))
	}
	assert.Equal(t, "in 5m", Relative(now.Add(5*time.Minute), now))
	assert.Equal(t, "1h ago", Relative(now.Add(-time.Hour), now))
	assert.Equal(t, "now", Relative(now, now))
	assert.Empty(t, Relative(time.Time{}, now))
	assert.Equal(t, "12:05:00.000", Absolute(now.Add(5*time.Minute), now))
	assert.Equal(t, "2026-03-05 12:00:00", Absolute(now.Add(24*time.Hour), now))
	assert.Equal(t, "2026-03-04 12:05:00.000 UTC (in 5m)", Full(now.Add(5*time.Minute), now))
}

func TestNumberFormatting(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234", -123: "-123"} {
		assert.Equal(t, want, Number(n))
	}
	assert.Equal(t, "1 message", Count(1, "message", "messages"))
	assert.Equal(t, "2,000 messages", Count(2000, "message", "messages"))
	assert.Equal(t, "1023 B", Bytes(1023))
	assert.Equal(t, "1.5 KiB", Bytes(1536))
	assert.Equal(t, "2.0 GiB", Bytes(2<<30))
}

func TestCleanEscapesControlCharacters(t *testing.T) {
	assert.Equal(t, "grüße", Clean("grüße"))
	assert.Equal(t, `a\x1b[2Jb\r\n\t`, Clean("a\x1b[2Jb\r\n\t"))
	assert.Equal(t, `\xff\u009b\u202e`, Clean("\xff\u009b\u202e"))
	assert.Equal(t, "a\n    b", Lines("a\n\tb"))
	assert.Equal(t, "ab…", Cut("abcdef", 3))
	assert.Equal(t, "abc", Cut("abc", 3))
	assert.Equal(t, "äö…", Cut("äöüß", 3))
	assert.Equal(t, "…", Cut("ab", 1))
	assert.Equal(t, `\xff\n…`, Start("\xff\n\xff", 7))
	assert.Equal(t, `\xff\n`, Start("\xff\n", 7))
	assert.Equal(t, "𝄞𝄞…", Start("𝄞𝄞𝄞𝄞", 3), "each has four bytes")
}
