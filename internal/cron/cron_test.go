package cron

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	require.NoError(t, err)
	return z
}

func TestNextHandlesClockChanges(t *testing.T) {
	const form = "2006-01-02 15:04:05 -0700"
	for name, c := range map[string]struct {
		expression, zone, after string
		want                    []string // of form
	}{
		"a weekday": {"0 7 * * 1", "Europe/Berlin", "2026-11-24 12:00:00 +0100", []string{"2026-11-30 07:00:00 +0100", "2026-12-07 07:00:00 +0100"}},
		"a fixed time in a gap moves to its end": {
			"30 2 * * *", "Europe/Berlin", "2026-03-28 12:00:00 +0100",
			[]string{"2026-03-29 03:00:00 +0200", "2026-03-30 02:30:00 +0200"},
		},
		"fixed times in a gap are merged": {
			"*/20 2 * * *", "Europe/Berlin", "2026-03-29 00:00:00 +0100",
			[]string{"2026-03-29 03:00:00 +0200", "2026-03-30 02:00:00 +0200"},
		},
		"a fixed time in an overlap occurs once": {
			"30 2 * * *", "Europe/Berlin", "2026-10-24 12:00:00 +0200",
			[]string{"2026-10-25 02:30:00 +0200", "2026-10-26 02:30:00 +0100"},
		},
		"after the first time of an overlap, the second does not count": {
			"30 2 * * *", "Europe/Berlin", "2026-10-25 02:10:00 +0100",
			[]string{"2026-10-26 02:30:00 +0100"},
		},
		"hourly stays hourly in a gap": {
			"0 * * * *", "Europe/Berlin", "2026-03-29 00:30:00 +0100",
			[]string{"2026-03-29 01:00:00 +0100", "2026-03-29 03:00:00 +0200", "2026-03-29 04:00:00 +0200"},
		},
		"hourly stays hourly in an overlap": {
			"0 * * * *", "Europe/Berlin", "2026-10-25 01:30:00 +0200",
			[]string{"2026-10-25 02:00:00 +0200", "2026-10-25 02:00:00 +0100", "2026-10-25 03:00:00 +0100"},
		},
		"a step in the hour follows elapsed time": {
			"0 2-4/2 * * *", "Europe/Berlin", "2026-10-24 12:00:00 +0200",
			[]string{"2026-10-25 02:00:00 +0200", "2026-10-25 02:00:00 +0100", "2026-10-25 04:00:00 +0100"},
		},
		"São Paulo has no midnight": {
			"@daily", "America/Sao_Paulo", "2018-11-03 12:00:00 -0300",
			[]string{"2018-11-04 01:00:00 -0200", "2018-11-05 00:00:00 -0200"},
		},
		"São Paulo has the hour before midnight twice": {
			"30 23 * * *", "America/Sao_Paulo", "2018-02-17 12:00:00 -0200",
			[]string{"2018-02-17 23:30:00 -0200", "2018-02-18 23:30:00 -0300"},
		},
		"Lord Howe's half hour is missing": {
			"15 2 * * *", "Australia/Lord_Howe", "2026-10-03 12:00:00 +1030",
			[]string{"2026-10-04 02:30:00 +1100", "2026-10-05 02:15:00 +1100"},
		},
		"Lord Howe's half hour occurs twice": {
			"45 1 * * *", "Australia/Lord_Howe", "2026-04-04 12:00:00 +1100",
			[]string{"2026-04-05 01:45:00 +1100", "2026-04-06 01:45:00 +1030"},
		},
		"each half hour of Lord Howe": {
			"*/30 * * * *", "Australia/Lord_Howe", "2026-04-05 01:10:00 +1100",
			[]string{"2026-04-05 01:30:00 +1100", "2026-04-05 01:30:00 +1030", "2026-04-05 02:00:00 +1030"},
		},
		"Apia's missing day is over at once": {
			"0 7 * * *", "Pacific/Apia", "2011-12-29 06:00:00 -1000",
			[]string{"2011-12-29 07:00:00 -1000", "2011-12-31 00:00:00 +1400", "2011-12-31 07:00:00 +1400"},
		},
		"Casablanca changes for Ramadan": {
			"30 2 * * *", "Africa/Casablanca", "2026-02-14 12:00:00 +0100",
			[]string{"2026-02-15 02:30:00 +0100", "2026-02-16 02:30:00 +0000"},
		},
		"a leap day that is eight years away": {"0 0 29 2 *", "UTC", "2096-03-01 00:00:00 +0000", []string{"2104-02-29 00:00:00 +0000"}},
		"every quarter of an hour":            {"@every 15m", "Asia/Kathmandu", "2026-01-01 00:01:00 +0545", []string{"2026-01-01 00:15:00 +0545"}},
		"every 7 hours, before the epoch":     {"@every 7h", "UTC", "1969-12-31 23:00:00 +0000", []string{"1970-01-01 00:00:00 +0000", "1970-01-01 07:00:00 +0000"}},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := Parse(c.expression)
			require.NoError(t, err)
			at, err := time.Parse(form, c.after)
			require.NoError(t, err)
			for _, want := range c.want {
				at = e.Next(at, zone(t, c.zone))
				assert.Equal(t, want, at.Format(form))
			}
		})
	}
}

func TestParseRejectsInvalidExpressions(t *testing.T) {
	for text, says := range map[string]string{
		"":                            "empty",
		"* * * *":                     "fields",
		"* * * * * *":                 "fields",
		"60 * * * *":                  "60",
		"1-99999999999 * * * *":       "99999999999",
		"*/0 * * * *":                 "step",
		"0 0 31 2 *":                  "no day matches",
		"TZ=UTC * * * * *":            "time zone",
		"CRON_TZ=":                    "time zone",
		"@every":                      "descriptor",
		"@every 1ms":                  "at least 1s",
		"@every -1h":                  "at least 1s",
		"@every 1s1ns":                "whole milliseconds",
		"@every soon":                 "soon",
		"@sometimes":                  "descriptor",
		strings.Repeat("1,", 200):     "characters",
		"\x00 * * * *":                "0",
		"0 0 * * 8":                   "8",
		"0 0 * * 7-8":                 "8",
		"0 0 * * 5-7/0":               "5-7/0",
		"0 0 * * X-7":                 "X",
		"0 0 * jan-dec-feb *":         "hyphens",
		"0 7 * *--5 *":                "range",
		"0 7 * 1,?-5 *":               "range",
		strings.Repeat("0 ", 5) + "x": "fields",
	} {
		_, err := Parse(text)
		require.ErrorIs(t, err, ErrExpression, "%q", text)
		assert.ErrorContains(t, err, says, "%q", text)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"0 7 * * 1", "*/5 1-3,9 29 2 SUN", "@every 1h30m", "@daily", "TZ= 1", "? ? ? ? ?", "0 7 * 1--5 *"} {
		f.Add(text, int64(0))
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, text string, seconds int64) {
		_ = Words(text) // which does not panic
		e, err := Parse(text)
		if err != nil {
			require.ErrorIs(t, err, ErrExpression)
			return
		}
		after := time.Unix(seconds%4e9, 0)
		if next := e.Next(after.In(berlin), berlin); !next.After(after) {
			t.Errorf("%q after %s is %s", text, after, next)
		}
	})
}

func TestNextWorksBeyondTheKnownTimeZoneRules(t *testing.T) {
	for _, expression := range []string{"0 7 * * *", "0 */12 * * *"} {
		e, err := Parse(expression)
		require.NoError(t, err)
		berlin := zone(t, "Europe/Berlin")
		at := time.Date(2035, 12, 1, 0, 0, 0, 0, berlin)
		for at.Year() < 2050 {
			next := e.Next(at, berlin)
			require.True(t, next.After(at) && next.Sub(at) < 26*time.Hour, "%s after %s", next, at)
			at = next
		}
	}
}

// TestEquivalentExpressionsHaveTheSameTimes compares each form of an expression with an equivalent one.
func TestEquivalentExpressionsHaveTheSameTimes(t *testing.T) {
	for form, same := range map[string]string{
		"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
		"@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@every 90m": "@every 1h30m",
		"0 0 ? ? ?": "0 0 * * *", "0 0 * JAN,Jul *": "0 0 * 1,7 *", "0 0 * * mon-FRI": "0 0 * * 1-5",
		"5/15 * * * *": "5-59/15 * * * *", "0 9-17/4 * * *": "0 9,13,17 * * *", "*/20 * * * *": "0,20,40 * * * *",
		"0 0 * * 7": "0 0 * * 0", "0 0 * * 1,7": "0 0 * * 0,1", "0 0 * * 5-7": "0 0 * * 0,5,6", "0 0 * * FRI-7": "0 0 * * 0,5,6",
		"0 0 * * 0-7": "0 0 * * 0-6", "0 0 * * 1-7/2": "0 0 * * 0,1,3,5", "0 0 * * 2-7/2": "0 0 * * 2,4,6",
		"0 0 * * 7-7": "0 0 * * SUN", "0 0 * * 7/2": "0 0 * * 0",
	} {
		got, err := Parse(form)
		require.NoError(t, err, form)
		want, err := Parse(same)
		require.NoError(t, err, same)
		at := start
		for range 200 {
			next := want.Next(at, time.UTC)
			require.Equal(t, next, got.Next(at, time.UTC), "%s and %s", form, same)
			at = next
		}
	}
}

var start = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
