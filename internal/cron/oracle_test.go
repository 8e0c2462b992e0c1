package cron

import (
	"archive/zip"
	"flag"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var full = flag.Bool("full", false, "compare all zones of the tz database with the oracle, from 1970 to 2040; takes minutes")

// step is how far the oracle goes at a time. Since 1970 clocks have differed from UTC by multiples of it.
const step = 30 * time.Second

// An oracle finds the times of an expression without any of the ways of package cron: it walks through time and looks
// at the clock.
type oracle struct {
	text    string
	fields  *cron.SpecSchedule
	elapsed bool
	done    map[time.Time]bool // what a clock has shown, for fixed hours
}

func newOracle(text string) *oracle {
	parsed, err := cron.ParseStandard(text)
	if err != nil {
		panic(err)
	}
	hour := strings.Fields(text)[1]
	return &oracle{text: text, fields: parsed.(*cron.SpecSchedule), elapsed: strings.ContainsAny(hour, "*/"), done: map[time.Time]bool{}}
}

// hasDay tells whether the expression happens on a day.
func (o *oracle) hasDay(shown time.Time) bool {
	const star = 1 << 63
	bit := func(set uint64, n int) bool { return set&(1<<n) != 0 }
	dom, dow := bit(o.fields.Dom, shown.Day()), bit(o.fields.Dow, int(shown.Weekday()))
	day := dom && dow
	if o.fields.Dom&star == 0 && o.fields.Dow&star == 0 {
		day = dom || dow
	}
	return day && bit(o.fields.Month, int(shown.Month()))
}

func (o *oracle) has(shown time.Time) bool {
	return shown.Second() == 0 && o.fields.Minute&(1<<shown.Minute()) != 0 && o.fields.Hour&(1<<shown.Hour()) != 0 && o.hasDay(shown)
}

// never tells whether the expression happens on no day, such as on 31 February.
func (o *oracle) never() bool {
	for day := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC); day.Year() < 2004; day = day.AddDate(0, 0, 1) {
		if o.hasDay(day) {
			return false
		}
	}
	return true
}

// fires tells whether the expression happens when a clock that has shown one time shows another one.
func (o *oracle) fires(before, shown time.Time) bool {
	if o.elapsed {
		return o.has(shown)
	}
	fires := false
	for passed := before.Add(step); !passed.After(shown); passed = passed.Add(step) { // more than one: a gap
		if o.has(passed) && !o.done[passed] {
			o.done[passed], fires = true, true
		}
	}
	return fires
}

// walk compares the expression with the oracle from one time to another one.
func (o *oracle) walk(from, to time.Time, zone *time.Location) error {
	e, err := Parse(o.text)
	if err != nil && o.never() {
		return nil
	}
	if err != nil {
		return err
	}
	clear(o.done)
	clock := func(t time.Time) time.Time {
		l := t.In(zone)
		return time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), l.Second(), 0, time.UTC)
	}
	next, before := e.Next(from.In(zone), zone), clock(from)
	for t := from.Add(step); !t.After(to); t = t.Add(step) {
		shown := clock(t)
		fires := o.fires(before, shown)
		if fires != next.Equal(t) {
			return fmt.Errorf("%q in %s: %s: the oracle says %t, next is %s", o.text, zone, t.In(zone), fires, next)
		}
		if fires {
			next = e.Next(t.In(zone), zone)
		}
		before = shown
	}
	return nil
}

// changes are when the offset of a zone changes.
func changes(zone *time.Location, from, to time.Time) []time.Time {
	var list []time.Time
	for at := from; ; {
		_, end := at.In(zone).ZoneBounds()
		if end.IsZero() || end.After(to) {
			return list
		}
		list = append(list, end)
		at = end
	}
}

// expression makes a random one, of which many fall into the hours in which clocks change.
func expression(r *rand.Rand) string {
	field := func(least, most int, choices ...string) string {
		if r.IntN(3) > 0 {
			return choices[r.IntN(len(choices))]
		}
		a, b := least+r.IntN(most-least+1), least+r.IntN(most-least+1)
		switch a, b = min(a, b), max(a, b); r.IntN(4) {
		case 0:
			return fmt.Sprintf("%d-%d", a, b)
		case 1:
			return fmt.Sprintf("%d,%d", a, b)
		case 2:
			return fmt.Sprintf("*/%d", 1+r.IntN(most))
		default:
			return fmt.Sprint(a)
		}
	}
	return strings.Join([]string{
		field(0, 59, "0", "30", "*/15", "*", "0,59"),
		field(0, 23, "0", "1", "2", "3", "1-3", "23", "*", "*/2", "0,2"),
		field(1, 31, "*"),
		field(1, 12, "*"),
		field(0, 6, "*", "*", "0", "6"),
	}, " ")
}

// zones are the names of the tz database that comes with Go.
func zones(t *testing.T) []string {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	require.NoError(t, err)
	database, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, database.Close()) })
	var names []string
	for _, f := range database.File {
		if !strings.HasSuffix(f.Name, "/") {
			names = append(names, f.Name)
		}
	}
	return names
}

func TestNextMatchesABruteForceWalk(t *testing.T) {
	names := []string{
		"America/Sao_Paulo", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca", "Europe/Berlin", "Africa/Monrovia",
		"Antarctica/Troll", "Asia/Gaza", "America/Godthab", "UTC",
	}
	from, to, some := time.Date(1970, 1, 2, 0, 0, 0, 0, time.UTC), time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC), 6
	if *full {
		names, some = zones(t), 1000
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, name := range names {
		z, err := time.LoadLocation(name)
		require.NoError(t, err)
		at := changes(z, from, to)
		r.Shuffle(len(at), func(i, j int) { at[i], at[j] = at[j], at[i] })
		at = append(at[:min(some, len(at))], from.Add(time.Duration(r.Int64N(int64(to.Sub(from)))).Truncate(step)))
		for _, change := range at {
			require.NoError(t, newOracle(expression(r)).walk(change.Add(-36*time.Hour), change.Add(36*time.Hour), z))
		}
	}
}
