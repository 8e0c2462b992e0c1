package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

func (a *app) doctor() *cobra.Command {
	fix := false
	cmd := a.command("doctor [TOPIC...]", "Find problems: the server, rights, clocks, and inconsistent topics", nil,
		func(ctx context.Context, args []string) error {
			examine := a.admin.Examine
			if fix {
				examine = a.admin.Fix
			}
			d := &diagnosis{app: a, bar: a.newBar("examined", 0), topics: map[alike][]string{}}
			err := examine(ctx, d.find, d.update, args...)
			d.bar.clear()
			switch {
			case err != nil && ctx.Err() != nil:
				return errors.New("stopped")
			case err != nil:
				return errors.Join(err, d.failed, d.more())
			}
			return errors.Join(d.failed, d.more(), d.advise(fix), d.outcome())
		})
	cmd.Flags().BoolVar(&fix, "fix", false, "make the repairs that lose no message")
	cmd.Example = "redisdelay doctor\nredisdelay doctor orders --fix"
	return cmd
}

// diagnosis shows findings immediately, because an examination may take minutes. If many topics have the same finding, it
// shows the first ones in full, and counts the others.
type diagnosis struct {
	app      *app
	bar      *bar
	topic    string // topic of the bar
	topics   map[alike][]string
	order    []alike // keys of topics, in order of their first finding
	problems int
	fixable  bool
	failed   error // why the output failed
}

// alike identifies findings that differ only in their topic.
type alike struct {
	severity admin.Severity
	check    string
	fixed    bool
}

// maxAlike is the number of similar findings that are shown in full.
const maxAlike = 5

func (d *diagnosis) find(f admin.Finding) {
	if f.Severity == admin.SeverityProblem && !f.Fixed {
		d.problems++
	}
	d.fixable = d.fixable || f.Fixable && !f.Fixed
	if f.Topic != "" && !d.app.json() {
		kind := alike{f.Severity, f.Check, f.Fixed}
		if d.topics[kind] == nil {
			d.order = append(d.order, kind)
		}
		if d.topics[kind] = append(d.topics[kind], f.Topic); len(d.topics[kind]) > maxAlike {
			return
		}
	}
	d.bar.clear()
	d.failed = errors.Join(d.failed, d.app.finding(f))
}

// update shows the progress in the current topic.
func (d *diagnosis) update(e admin.ExamineProgress) {
	if e.Topic != d.topic {
		d.bar.clear()
		d.topic, d.bar = e.Topic, d.app.newBar("examined", e.Total)
	}
	d.bar.update(admin.Progress{Done: e.Done})
}

// more summarizes the findings that were not shown.
func (d *diagnosis) more() error {
	for _, kind := range d.order {
		rest := d.topics[kind]
		if len(rest) <= maxAlike {
			continue
		}
		rest = rest[maxAlike:]
		text := fmt.Sprintf("the same of %s: %q", humanize.Count(len(rest), "more topic", "more topics"), humanize.Clean(rest[0]))
		if len(rest) > 1 {
			text += fmt.Sprintf(" … %q", humanize.Clean(rest[len(rest)-1]))
		}
		f := admin.Finding{Severity: kind.severity, Check: kind.check, Fixed: kind.fixed, Text: text}
		if err := d.app.finding(f); err != nil {
			return err
		}
	}
	return nil
}

func (d *diagnosis) advise(fix bool) error {
	if !d.fixable || fix || d.app.json() {
		return nil
	}
	return d.app.printf("redisdelay doctor --fix makes the repairs that lose no message\n")
}

func (d *diagnosis) outcome() error {
	if d.problems > 0 {
		return fmt.Errorf("found %s", humanize.Count(d.problems, "problem", "problems"))
	}
	return nil
}

// finding prints a finding.
func (a *app) finding(f admin.Finding) error {
	if a.json() {
		return a.object(f)
	}
	mark := paint(dimStyle, "info   ")
	switch {
	case f.Fixed:
		mark = paint(goodStyle, "fixed  ")
	case f.Severity == admin.SeverityWarning:
		mark = paint(warnStyle, "warning")
	case f.Severity == admin.SeverityProblem:
		mark = paint(badStyle, "problem")
	}
	text := f.Text
	if f.Server != "" {
		text = f.Server + ": " + text
	}
	if f.Topic != "" {
		text = fmt.Sprintf("topic %q: %s", f.Topic, text)
	}
	if f.Fixable && !f.Fixed {
		text += " (--fix)"
	}
	return a.printf("%s  %-12s %s\n", mark, f.Check, text)
}
