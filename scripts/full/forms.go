package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A form is a long run of tests.
type form struct {
	name    string
	command string        // for sh, in the root of the repository
	of      string        // the packages that it tests, in the form of `go list`; "" for everything
	limit   time.Duration // ends a run that hangs
	beside  bool          // it measures no time and needs no more than a processor, so that another one may run beside it
	figure  figure        // may be nil
}

// A figure finds in a log how much a form did.
type figure func(log string) string

const (
	everything = "./... ./cmd/redisdelay/... ./redisdelayprom/... ./redisdelayotel/..."
	chaos      = "./internal/verify/chaos"
	delivering = "./internal/verify/sim"
	whole      = "./internal/verify/whole"
)

// forms are all forms, in the order of the page.
var forms = []form{
	{name: "chaos-faults", command: "make chaos-faults", of: chaos, limit: 45 * time.Minute, figure: tests},
	{name: "chaos-churn", command: "make chaos-churn", of: chaos, limit: 25 * time.Minute, beside: true, figure: tests},
	{name: "chaos-periodic", command: "make chaos-periodic", of: chaos, limit: 25 * time.Minute, figure: both(tests, late)},
	{name: "chaos-inbox", command: "make chaos-inbox", of: chaos, limit: 15 * time.Minute, beside: true, figure: tests},
	{name: "chaos-languages", command: "make chaos-languages", of: "./internal/verify/languages", limit: 15 * time.Minute, figure: tests}, // ten processes at once
	{name: "chaos-metrics", command: "make chaos-metrics", of: "./redisdelayprom", limit: 12 * time.Minute, figure: tests},
	{name: "failover", command: "make failover", of: chaos, limit: 20 * time.Minute, figure: tests}, // its cases have 10 s to go on
	{name: "model", command: "make model", of: "./internal/queue", limit: 8 * time.Minute, beside: true, figure: tests},
	explored("explore-sound"), explored("explore-damage"), explored("explore-torn"),
	{name: "sim-delivery", command: "SIM=5m make sim-delivery", of: delivering, limit: 20 * time.Minute, beside: true, figure: both(virtual, tests)},
	{name: "sim-whole", command: "SIM=5m make sim-whole", of: whole, limit: 20 * time.Minute, beside: true, figure: tests},
	{name: "sim-mistakes", command: "make sim-mistakes", of: whole, limit: 40 * time.Minute, beside: true, figure: tests},
	{name: "year", command: "make year", of: whole, limit: 90 * time.Minute, beside: true, figure: both(virtual, tests)},
	{name: "months", command: "make months", of: "./redisdelaytest", limit: 20 * time.Minute, beside: true, figure: tests},
	{name: "cron", command: "make cron", of: "./internal/cron", limit: 15 * time.Minute, beside: true, figure: tests},
	{name: "dashboard", command: "make dashboard", of: "./dashboard/browser", limit: 15 * time.Minute, figure: tests}, // two browsers at once are slow
	{name: "stress", command: "make stress", of: "./internal/verify/acceptance", limit: 20 * time.Minute, figure: tests},
	onServer("redis-7.0"), onServer("redict-7.3"), onServer("redis-8.0"), onServer("valkey-8.0"), onServer("valkey-9"),
	{name: "bench", command: "ROUNDS=3 make bench", of: "./bench", limit: 60 * time.Minute, figure: bars},
	{name: "million10", command: "make million10", of: "./bench", limit: 20 * time.Minute, figure: bars},
}

// code is the digest of the code that a form runs on.
func (f form) code(root string) (string, error) { return digest(root, cmp.Or(f.of, everything)) }

// explored is a form that visits all states of some universes.
func explored(name string) form {
	return form{name: name, command: "make " + name, of: "./internal/verify/explore", limit: 30 * time.Minute, beside: true, figure: both(states, tests)}
}

// onServer is the form that runs all tests on a server that scripts/matrix.sh knows.
func onServer(name string) form {
	return form{name: "matrix-" + name, command: "SERVERS=" + name + " make matrix", of: "./...", limit: 30 * time.Minute}
}

// choose returns the forms whose names are given, or begin with one of them and a dash; all if none is given.
func choose(forms []form, names []string) ([]form, error) {
	if len(names) == 0 {
		return forms, nil
	}
	chosen := make([]bool, len(forms))
	for _, name := range names {
		known := false
		for i, f := range forms {
			if f.name == name || strings.HasPrefix(f.name, name+"-") {
				chosen[i], known = true, true
			}
		}
		if !known {
			return nil, fmt.Errorf("no form is named %q", name)
		}
	}
	var list []form
	for i, f := range forms {
		if chosen[i] {
			list = append(list, f)
		}
	}
	return list, nil
}

var (
	verdict = regexp.MustCompile(`(?m)^ *--- (PASS|SKIP|FAIL): (\S+)`)
	version = regexp.MustCompile(`(?m)^\S+ +([A-Z]\w+ [\d.]+) +(?:passed|FAILED)`) // of the summary of matrix.sh
	missing = regexp.MustCompile(`(?m)^\S+ +- +(could not be had)`)
)

// tests counts the tests that passed, and names those that were skipped. Of a name with subtests, it tells what begins
// with Test: the rest may be the number of a run, or random.
func tests(log string) string {
	passed, skipped := 0, []string(nil)
	for _, m := range verdict.FindAllStringSubmatch(log, -1) {
		switch m[1] {
		case "PASS":
			passed++
		case "SKIP":
			parts := slices.DeleteFunc(strings.Split(m[2], "/"), func(part string) bool { return !strings.HasPrefix(part, "Test") })
			skipped = append(skipped, strings.Join(parts, "/"))
		}
	}
	slices.Sort(skipped)
	skipped = slices.Compact(skipped)
	said := strconv.Itoa(passed) + " passed"
	if len(skipped) > 0 {
		said += ", skipped: " + strings.Join(skipped, " ")
	}
	return said
}

// states counts the states that the explorer has visited, and says of how many universes it has not seen all.
func states(log string) string {
	said := sum(`: (\d+) states`, "states")(log)
	if cut := strings.Count(log, " states (NOT all)"); cut > 0 {
		said += fmt.Sprintf(" (%d universes not to the end)", cut)
	}
	return said
}

var lateness = regexp.MustCompile(`stored ahead: ([\d.]+ ms)`)

// late is how late schedules were without faults.
func late(log string) string {
	m := lateness.FindStringSubmatch(log)
	if m == nil {
		return "no lateness"
	}
	return "p99 lateness " + m[1]
}

// virtual adds up the hours that a simulation has lived.
var virtual = sum(`([\d.]+) h of virtual time`, "hours of virtual time")

// sum adds up the numbers that a pattern finds.
func sum(pattern, unit string) figure {
	find := regexp.MustCompile(pattern)
	return func(log string) string {
		var total float64
		for _, m := range find.FindAllStringSubmatch(log, -1) {
			n, _ := strconv.ParseFloat(m[1], 64) // the pattern finds digits
			total += n
		}
		return strconv.FormatFloat(total, 'f', 0, 64) + " " + unit
	}
}

func both(a, b figure) figure {
	return func(log string) string { return a(log) + ", " + b(log) }
}

// bars counts the bars of the benchmarks.
func bars(log string) string {
	said := fmt.Sprintf("%d bars met", strings.Count(log, "| yes |\n"))
	if missed := strings.Count(log, "| **no** |\n"); missed > 0 {
		said += fmt.Sprintf(", **%d missed**", missed)
	}
	return said
}
