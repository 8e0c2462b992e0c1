package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// write writes the report into a directory. The report names the command that made it.
func write(ctx context.Context, dir, command string, l *lab, outcomes []outcome) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	head, err := heading(ctx, command, l)
	if err != nil {
		return err
	}
	var text strings.Builder
	text.WriteString(head + reader + barTable(outcomes))
	for _, o := range outcomes {
		if near, isFar := strings.CutSuffix(o.name, farSuffix); !isFar || find(outcomes, near) == nil {
			text.WriteString(o.section(find(outcomes, o.name+farSuffix)))
		}
	}
	return os.WriteFile(filepath.Join(dir, "README.md"), []byte(text.String()), 0o644)
}

// find returns the outcome of an experiment; nil if it was not run.
func find(outcomes []outcome, name string) *outcome {
	i := slices.IndexFunc(outcomes, func(o outcome) bool { return o.name == name })
	if i < 0 {
		return nil
	}
	return &outcomes[i]
}

const reader = `Each value is the median over the rounds, followed by the minimum and the maximum. "Redis CPU + client CPU" has only medians: user and
system time of Redis (INFO), and of the client (getrusage), which publishes and consumes on the same cores. "rate of A / B" is the rate of
A, by default redisdelay, divided by that of B in the same round. A bar is a bound that the median should keep; if not, the last column
says why. In runs with ".far" or "1 ms away", a proxy delays each reply of Redis by 1 ms. These runs and slow libraries have fewer
messages. redisstream is watermill-redisstream, with a pool of 200 connections if several goroutines publish. asynq is a task queue.
`

func heading(ctx context.Context, command string, l *lab) (string, error) {
	redisVersion, err := l.infoText(ctx, "Server", "redis_version")
	if err != nil {
		return "", err
	}
	cpu, err := cpuModel()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(`# Benchmarks

Measured by `+"`%s`"+` (bench/) on %s: %s, %d cores; Redis %s on the same machine, without persistence unless
stated otherwise; %s. All options have their defaults. Messages have UUIDs and payloads of %d bytes. Every message arrived. If
messages arrived twice, their table has a row for duplicates.

`, command, time.Now().UTC().Format(time.DateOnly), cpu, runtime.NumCPU(), redisVersion, runtime.Version(), payloadSize), nil
}

func cpuModel() (string, error) {
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "", err
	}
	defer file.Close() //nolint:errcheck // only read
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if name, value, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value), nil
		}
	}
	return "unknown CPU", nil
}

// barTable lists which bars are met.
func barTable(outcomes []outcome) string {
	var text strings.Builder
	for _, o := range outcomes {
		if len(o.bars) > 0 && text.Len() == 0 {
			text.WriteString("\n| experiment | what | measured (min–max) | bar | met |\n| --- | --- | --- | --- | --- |\n")
		}
		for _, b := range o.bars {
			met := "yes"
			if !o.met(b) {
				met = cmp.Or(b.goal, "**no**")
			}
			if !b.bounded() {
				met = "–"
			}
			unit := o.unit(b)
			fmt.Fprintf(&text, "| %s | %s | %s | %s | %s |\n",
				o.name, b.describe(), spreadOf(o.measured(b)).text(unit), b.text(unit), met)
		}
	}
	return text.String()
}

func (b bar) describe() string {
	what := b.reading
	if b.of != ours {
		what += " of " + b.of
	}
	switch len(b.against) {
	case 0:
	case 1:
		what += " / " + b.against[0]
	default:
		what += " / the best of " + strings.Join(b.against, ", ")
	}
	return what
}

func (b bar) bounded() bool { return b.least > 0 || b.most > 0 }

func (b bar) text(unit string) string {
	if !b.bounded() {
		return "–"
	}
	if b.most > 0 {
		return "≤ " + strings.TrimSpace(number(b.most)+" "+unit)
	}
	return "≥ " + strings.TrimSpace(number(b.least)+" "+unit)
}

// unit returns the unit of the values that are compared with a bar.
func (o outcome) unit(b bar) string {
	if len(b.against) > 0 {
		return "×"
	}
	for _, r := range o.samples[b.of][0] {
		if r.name == b.reading {
			return r.unit
		}
	}
	return ""
}

// section returns the experiment's part of the report, with all measurements. far is the same experiment with Redis a
// millisecond away, or nil.
func (o outcome) section(far *outcome) string {
	var text strings.Builder
	fmt.Fprintf(&text, "\n## %s\n\n%s\n", o.name, o.what)
	runs := []outcome{o}
	if far != nil {
		runs = append(runs, *far)
	}
	fmt.Fprintf(&text, "\n| %d %s |", o.rounds(), plural(o.rounds(), "round"))
	var readings []string // in the order of the first contestant that has them
	columns := 1
	for _, run := range runs {
		for _, c := range run.contestants {
			columns++
			title := c.name
			if run.distance > 0 && far != nil {
				title += ", 1 ms away"
			}
			fmt.Fprintf(&text, " %s |", title)
			for _, r := range run.samples[c.name][0] {
				if !slices.Contains(readings, r.name) {
					readings = append(readings, r.name)
				}
			}
		}
	}
	text.WriteString("\n|" + strings.Repeat(" --- |", columns) + "\n")
	for _, name := range readings {
		if name == duplicates && !slices.ContainsFunc(runs, outcome.hasDuplicates) {
			continue
		}
		cell, title := outcome.cell, name
		switch name {
		case redisCPU:
			cell, title = outcome.bothCPUs, redisCPU+" + "+clientCPU
		case clientCPU:
			continue // shown next to Redis's
		}
		fmt.Fprintf(&text, "| %s |", title)
		for _, run := range runs {
			for _, c := range run.contestants {
				fmt.Fprintf(&text, " %s |", cell(run, c.name, name))
			}
		}
		text.WriteString("\n")
	}
	return text.String()
}

// hasDuplicates reports whether a message arrived twice in any run.
func (o outcome) hasDuplicates() bool {
	for _, samples := range o.samples {
		for _, s := range samples {
			if slices.ContainsFunc(s, func(r reading) bool { return r.name == duplicates && r.value > 0 }) {
				return true
			}
		}
	}
	return false
}

func (o outcome) rounds() int { return len(o.samples[o.contestants[0].name]) }

// cell returns the text for one reading of one contestant.
func (o outcome) cell(contestant, reading string) string {
	for _, r := range o.samples[contestant][0] {
		if r.name == reading {
			s := spreadOf(o.values(contestant, reading))
			if o.rounds() == 1 || s.least == s.most {
				return strings.TrimSpace(number(s.median) + " " + r.unit)
			}
			return s.text(r.unit)
		}
	}
	return "–"
}

// bothCPUs returns the text for a contestant's CPU times, of Redis and of the client.
func (o outcome) bothCPUs(contestant, _ string) string {
	if !slices.ContainsFunc(o.samples[contestant][0], func(r reading) bool { return r.name == redisCPU }) {
		return "–"
	}
	redis, client := spreadOf(o.values(contestant, redisCPU)), spreadOf(o.values(contestant, clientCPU))
	return fmt.Sprintf("%s + %s µs/msg", number(redis.median), number(client.median))
}

func plural(n int, one string) string {
	if n == 1 {
		return one
	}
	return one + "s"
}

func (s spread) text(unit string) string {
	return fmt.Sprintf("%s (%s–%s)", strings.TrimSpace(number(s.median)+" "+unit), number(s.least), number(s.most))
}

// number formats a value: three digits, or all digits of a large number.
func number(v float64) string {
	switch {
	case v == float64(int64(v)) && v < 1000 && v > -1000:
		return strconv.Itoa(int(v))
	case v < 10 && v > -10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 100 && v > -100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return thousands(int(v + 0.5))
	}
}

func thousands(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}
