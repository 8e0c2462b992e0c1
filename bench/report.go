package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// write puts the report into a directory. The report names the command that made it.
func write(ctx context.Context, dir, command string, l *lab, outcomes []outcome) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	head, err := heading(ctx, command, l)
	if err != nil {
		return err
	}
	var text strings.Builder
	text.WriteString(head + barTable(outcomes) + reader)
	for _, o := range outcomes {
		text.WriteString(o.section())
	}
	return os.WriteFile(filepath.Join(dir, "README.md"), []byte(text.String()), 0o644)
}

const reader = `
A ratio is that of two runs in the same round; what is given is the median over the
rounds, then the least and the most. A bar is met if the median meets it; if a reason
is given in the last column, the bar is a goal. CPU is user
and system time, of Redis (INFO) and of this process (getrusage), which is publisher
and consumer in one. Client and Redis share the cores, so the two compete.
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

Made by `+"`%s`"+` (bench/) on %s: %s, %d cores; Redis %s on the same machine,
without persistence where nothing else is said; %s. Default options everywhere, payloads of %d bytes, UUIDs.
Every message arrived; duplicates are shown where there could be any.

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

// barTable says which bars are met.
func barTable(outcomes []outcome) string {
	var text strings.Builder
	for _, o := range outcomes {
		if len(o.bars) > 0 && text.Len() == 0 {
			text.WriteString("| experiment | what | measured (min–max) | bar | met |\n| --- | --- | --- | --- | --- |\n")
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

// unit is the unit of the values that are compared with a bar.
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

// section is an experiment's part of the report, with all measurements.
func (o outcome) section() string {
	var text strings.Builder
	fmt.Fprintf(&text, "\n## %s\n\n%s\n\n| | | median | min–max | rounds |\n| --- | --- | --- | --- | --- |\n", o.name, o.what)
	for _, c := range o.contestants {
		for _, r := range o.samples[c.name][0] {
			s := spreadOf(o.values(c.name, r.name))
			fmt.Fprintf(&text, "| %s | %s | %s | %s–%s | %d |\n", c.name, r.name,
				strings.TrimSpace(number(s.median)+" "+r.unit), number(s.least), number(s.most), len(o.samples[c.name]))
		}
	}
	return text.String()
}

func (s spread) text(unit string) string {
	return fmt.Sprintf("%s (%s–%s)", strings.TrimSpace(number(s.median)+" "+unit), number(s.least), number(s.most))
}

// number formats a value: three digits, or all of a large number.
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
