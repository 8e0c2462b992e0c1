package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/spf13/cobra"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

// operation is an operation of a command on messages.
type operation struct {
	name string // in JSON, such as "requeue"
	done string // such as "requeued"
	ask  string // such as "Requeue"
	noun string // such as "dead message"
	run  runner
}

type runner = func(ctx context.Context, topic string, which admin.Selection, progress func(admin.Progress)) (admin.Progress, error)

func (op operation) of(n int) string { return humanize.Count(n, op.noun, op.noun+"s") }

var errNotAsked = &usageError{"--yes is missing: there is no terminal to ask on, want --yes or --dry-run"}

// runBulk carries out an operation on the selected messages. With a filter, it first shows the number of messages and a
// sample, and asks for confirmation.
func (a *app) runBulk(ctx context.Context, cmd *cobra.Command, args []string, c *chooser, op operation) error {
	total, named := c.named(args)
	result := operationJSON{Topic: args[0], Operation: op.name, DryRun: c.dryRun}
	if !named {
		var err error
		if total, err = a.preamble(ctx, args[0], c.filter.query(), op); err != nil {
			return err
		}
		result.Matching = &total
	}
	if total == 0 || c.dryRun {
		result.Complete = total == 0
		return a.unchanged(ctx, args, c, op, result)
	}
	if !named && !c.yes {
		if err := a.confirm(ctx, fmt.Sprintf("%s %s of topic %q?", op.ask, op.of(total), args[0])); err != nil {
			return err
		}
	}
	bar := a.newBar(op.done, total)
	progress, err := op.run(ctx, args[0], c.selection(args), bar.update)
	bar.clear()
	result.set(progress, err)
	if err != nil && !named {
		result.Cursor = progress.Cursor
	}
	failed := outcome(ctx, err, progress, named)
	if named && failed != nil && !a.json() {
		result.Skipped, result.Reason = 0, "" // the error has the reason
		if result.Done == 0 {
			return failed
		}
	}
	return errors.Join(a.report(result, op, cmd, args), failed)
}

// outcome returns the error of an operation, given its progress.
func outcome(ctx context.Context, err error, progress admin.Progress, named bool) error {
	switch {
	case err != nil && ctx.Err() != nil:
		return errors.New("stopped")
	case err != nil:
		return err
	case named && progress.Skipped > 1 && progress.LastSkip != nil:
		return fmt.Errorf("%s were left as they were, the last one: %w", humanize.Count(progress.Skipped, "message", "messages"), progress.LastSkip)
	case named && progress.Skipped > 0 && progress.LastSkip != nil:
		return progress.LastSkip
	case named && progress.Skipped > 0:
		return fmt.Errorf("%s left as it was", humanize.Count(progress.Skipped, "message was", "messages were"))
	}
	return nil
}

// preamble counts the matching messages and shows a sample.
func (a *app) preamble(ctx context.Context, topic string, q admin.Query, op operation) (int, error) {
	total, err := a.admin.Count(ctx, topic, q)
	if err != nil || a.json() || total == 0 {
		return total, err
	}
	q.Limit, q.Cursor = 5, "" // a page does not accept the cursor of an operation
	page, err := a.admin.Entries(ctx, topic, q)
	if err != nil {
		return 0, err
	}
	first := ", such as"
	if total <= len(page.Entries) {
		first = ""
	}
	if err := a.printf("%s%s:\n\n", op.of(total), first); err != nil {
		return 0, err
	}
	if err := a.showEntries(page.Entries, q.Set); err != nil {
		return 0, err
	}
	return total, a.printf("\n")
}

// unchanged reports that nothing was changed, because no message matches or it is a dry run.
func (a *app) unchanged(ctx context.Context, args []string, c *chooser, op operation, result operationJSON) error {
	var failed error
	if _, named := c.named(args); named {
		found, err := a.dryAll(ctx, args[0], c.refs(args))
		result.Matching, failed = &found, err
	}
	switch {
	case a.json():
		return errors.Join(a.object(result), failed)
	case failed != nil:
		return failed
	case !result.DryRun:
		return a.printf("no %s matches\n", op.noun)
	}
	return a.printf("nothing is done: this is a dry run\n")
}

// dryAll explains the messages that an operation would change. It returns how many there are, and the first error.
func (a *app) dryAll(ctx context.Context, topic string, which []admin.Ref) (found int, failed error) {
	for _, ref := range which {
		err := a.dry(ctx, topic, ref)
		switch failed = cmp.Or(failed, err); {
		case err == nil:
			found++
		case !errors.Is(err, admin.ErrMessageNotFound): // the other messages would fail in the same way
			return found, failed
		}
	}
	return found, failed
}

// dry explains a message that an operation would change.
func (a *app) dry(ctx context.Context, topic string, which admin.Ref) error {
	e, err := a.admin.Explain(ctx, topic, which)
	if err != nil || a.json() {
		return err
	}
	return a.printf("%s: %s\n", e.Message.ID, e.Summary)
}

// report prints the result of an operation.
func (a *app) report(result operationJSON, op operation, cmd *cobra.Command, args []string) error {
	if err := a.reply(result, "%s %s%s", op.done, op.of(result.Done), result.skips()); err != nil || a.json() || result.Cursor == "" {
		return err
	}
	return a.printf("go on with: %s\n", resumeLine(cmd, args, result.Cursor))
}

// confirm asks a question on the terminal. It returns an error unless the answer is yes. Ctrl-C is a no.
func (a *app) confirm(ctx context.Context, question string) error {
	answer, err := a.ask(ctx, question+" [y/N] ")
	if answer = strings.ToLower(answer); err != nil || answer == "y" || answer == "yes" {
		return err
	}
	return errors.New("nothing is done: the answer was no")
}

// ask reads a line from the terminal.
func (a *app) ask(ctx context.Context, prompt string) (string, error) {
	a.say("%s", prompt)
	type line struct {
		text string
		err  error
	}
	// Without an answer, the goroutine ends with the process.
	read := make(chan line, 1)
	go func() {
		text, err := bufio.NewReader(a.in).ReadString('\n')
		read <- line{strings.TrimSpace(text), err}
	}()
	select {
	case l := <-read:
		if l.err != nil {
			return "", errors.New("nothing is done: there was no answer")
		}
		return l.text, nil
	case <-ctx.Done():
		a.say("\n")
		return "", errors.New("nothing is done: stopped")
	}
}

// bulkCommand returns a command for many messages. It calls the function for the operation after parsing the flags.
func (a *app) bulkCommand(use, short string, sets []admin.Set, check func(*cobra.Command) error, make func() operation) *cobra.Command {
	var c *chooser
	var called *cobra.Command
	cmd := a.command(use, short, func(cmd *cobra.Command, args []string) error {
		called = cmd
		if check != nil {
			if err := check(cmd); err != nil {
				return err
			}
		}
		if err := c.check(cmd, args); err != nil {
			return err
		}
		if _, named := c.named(args); !named && !c.yes && !c.dryRun && !a.terminal.in {
			return errNotAsked
		}
		return nil
	}, func(ctx context.Context, args []string) error {
		ids, err := a.fullIDs(ctx, args[0], args[1:])
		if err != nil {
			return err
		}
		args = append(args[:1:1], ids...)
		err = a.runBulk(ctx, called, args, c, make())
		if len(ids)+len(c.keys) == 1 {
			err = a.notFound(ctx, args[0], admin.Ref{ID: strings.Join(ids, ""), Key: strings.Join(c.keys, "")}, err)
		}
		return err
	})
	c = a.newChooser(cmd, sets...)
	return cmd
}

func (a *app) cancel() *cobra.Command {
	cmd := a.bulkCommand("cancel TOPIC [ID...]", "Cancel messages that are scheduled, waiting or in delivery",
		[]admin.Set{admin.Scheduled, admin.Waiting, admin.InDelivery}, nil,
		func() operation { return operation{"cancel", "cancelled", "Cancel", "message", a.admin.Cancel} })
	cmd.Example = "redisdelay cancel orders --key order-42\nredisdelay cancel orders --due-after 18:00 --due-before 20:00"
	return cmd
}

func (a *app) reschedule() *cobra.Command {
	t := &due{app: a}
	cmd := a.bulkCommand("reschedule TOPIC [ID...]", "Change the due time of waiting messages",
		[]admin.Set{admin.Scheduled, admin.Waiting}, t.needed, func() operation {
			run := func(ctx context.Context, topic string, which admin.Selection, progress func(admin.Progress)) (admin.Progress, error) {
				return a.admin.Reschedule(ctx, topic, which, t.delay(), progress)
			}
			return operation{"reschedule", "rescheduled", "Reschedule", "message", run}
		})
	t.flags(cmd)
	cmd.Example = "redisdelay reschedule orders --key order-42 --in 5m\nredisdelay reschedule orders --due-before 1h --at 18:00"
	return cmd
}

func (a *app) deliverNow() *cobra.Command {
	cmd := a.bulkCommand("deliver-now TOPIC [ID...]", "Make waiting messages due now",
		[]admin.Set{admin.Scheduled, admin.Waiting}, nil,
		func() operation {
			return operation{"deliver-now", "made due", "Deliver now", "message", a.admin.DeliverNow}
		})
	cmd.Example = "redisdelay deliver-now orders --key order-42"
	return cmd
}

func (a *app) bury() *cobra.Command {
	reason := ""
	cmd := a.bulkCommand("bury TOPIC [ID...]", "Make messages dead in a group: they are not delivered until requeued",
		[]admin.Set{admin.Waiting, admin.InDelivery}, func(cmd *cobra.Command) error { return needs(cmd, "reason") },
		func() operation {
			run := func(ctx context.Context, topic string, which admin.Selection, progress func(admin.Progress)) (admin.Progress, error) {
				return a.admin.Bury(ctx, topic, which, reason, progress)
			}
			return operation{"bury", "buried", "Bury", "message", run}
		})
	cmd.Flags().Var(text(&reason, "TEXT"), "reason", "the reason that the dead message shows")
	cmd.Example = `redisdelay bury orders 01K4Z2V3W4X5Y6Z7A8B9C0D1E2 --reason "crashes the handler"`
	return cmd
}

// due has the flags for a due time.
type due struct {
	app *app
	in  time.Duration
	at  time.Time
	set bool
}

func (t *due) flags(cmd *cobra.Command) {
	cmd.Flags().Var(duration(&t.in, 0), "in", "due after this time, by Redis's clock: "+humanize.WantDuration)
	cmd.Flags().Var(t.app.moment(&t.at, humanize.Ahead), "at", "due at this time: 15:04, \"2006-01-02 15:04\" or 2006-01-02T15:04:05Z")
}

func (t *due) check(cmd *cobra.Command) error {
	t.set = cmd.Flags().Changed("in") || cmd.Flags().Changed("at")
	return exclusive(cmd, "in", "at")
}

// needed returns an error if no due time is given.
func (t *due) needed(cmd *cobra.Command) error {
	if err := t.check(cmd); err != nil || t.set {
		return err
	}
	return usagef("the new due time is missing: want --in DURATION or --at TIME")
}

func (t *due) delay() delay.Delay {
	if !t.at.IsZero() {
		return delay.Until(t.at)
	}
	return delay.For(t.in)
}
