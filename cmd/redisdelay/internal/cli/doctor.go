package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/cmd/redisdelay/internal/words"
)

func (a *app) doctor() *cobra.Command {
	fix := false
	cmd := a.command("doctor [TOPIC...]", "Look for trouble: server, rights, clocks, and what does not fit in the topics", nil,
		func(ctx context.Context, args []string) error {
			examine := a.admin.Examine
			if fix {
				examine = a.admin.Fix
			}
			problems, fixable := 0, false
			var failed error // of the output
			err := examine(ctx, func(f admin.Finding) {
				if f.Severity == admin.Problem && !f.Fixed {
					problems++
				}
				fixable = fixable || f.Fixable && !f.Fixed
				failed = errors.Join(failed, a.finding(f))
			}, args...)
			switch {
			case err != nil && ctx.Err() != nil:
				return errors.New("stopped")
			case err != nil || failed != nil:
				return errors.Join(err, failed)
			case fixable && !fix && !a.json():
				failed = a.printf("redisdelay doctor --fix mends what can be mended without losing a message\n")
			}
			if problems > 0 {
				return fmt.Errorf("found %s", words.Of(problems, "problem", "problems"))
			}
			return failed
		})
	cmd.Flags().BoolVar(&fix, "fix", false, "mend what can be mended without losing a message")
	cmd.Example = "redisdelay doctor\nredisdelay doctor orders --fix"
	return cmd
}

// finding shows a finding at once: the whole may take minutes.
func (a *app) finding(f admin.Finding) error {
	if a.json() {
		return a.object(findingJSON{string(f.Severity), f.Check, f.Topic, f.Text, f.Fixable, f.Fixed})
	}
	mark := paint(dimStyle, "info   ")
	switch {
	case f.Fixed:
		mark = paint(goodStyle, "fixed  ")
	case f.Severity == admin.Warning:
		mark = paint(warnStyle, "warning")
	case f.Severity == admin.Problem:
		mark = paint(badStyle, "problem")
	}
	text := f.Text
	if f.Topic != "" {
		text = fmt.Sprintf("topic %q: %s", f.Topic, text)
	}
	if f.Fixable && !f.Fixed {
		text += " (--fix)"
	}
	return a.printf("%s  %-12s %s\n", mark, f.Check, text)
}
