package cli

import (
	"context"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/spf13/cobra"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

type runner = func(ctx context.Context, topic string, which admin.Selection, progress func(admin.Progress)) (admin.Progress, error)

// bulkCommand returns a command for many messages. The operation is made once the flags are read.
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

func messages(name, done, ask string, run runner) operation {
	return operation{name: name, done: done, ask: ask, one: "message", many: "messages", run: run}
}

func (a *app) cancel() *cobra.Command {
	cmd := a.bulkCommand("cancel TOPIC [ID...]", "Take messages back: scheduled, waiting or in delivery",
		[]admin.Set{admin.Scheduled, admin.Waiting, admin.InDelivery}, nil,
		func() operation { return messages("cancel", "cancelled", "Cancel", a.admin.Cancel) })
	cmd.Example = "redisdelay cancel orders --key order-42\nredisdelay cancel orders --due-after 18:00 --due-before 20:00"
	return cmd
}

func (a *app) reschedule() *cobra.Command {
	t := &due{app: a}
	cmd := a.bulkCommand("reschedule TOPIC [ID...]", "Give messages that wait a new due time",
		[]admin.Set{admin.Scheduled, admin.Waiting}, t.needed, func() operation {
			return messages("reschedule", "rescheduled", "Reschedule",
				func(ctx context.Context, topic string, which admin.Selection, progress func(admin.Progress)) (admin.Progress, error) {
					return a.admin.Reschedule(ctx, topic, which, t.delay(), progress)
				})
		})
	t.flags(cmd)
	cmd.Example = "redisdelay reschedule orders --key order-42 --in 5m\nredisdelay reschedule orders --due-before 1h --at 18:00"
	return cmd
}

func (a *app) deliverNow() *cobra.Command {
	cmd := a.bulkCommand("now TOPIC [ID...]", "Deliver messages that wait now",
		[]admin.Set{admin.Scheduled, admin.Waiting}, nil,
		func() operation { return messages("now", "made due", "Deliver now", a.admin.DeliverNow) })
	cmd.Example = "redisdelay now orders --key order-42"
	return cmd
}

func (a *app) bury() *cobra.Command {
	reason := ""
	cmd := a.bulkCommand("bury TOPIC [ID...]", "Make messages dead letters of a group: they are not delivered until requeued",
		[]admin.Set{admin.Waiting, admin.InDelivery}, func(cmd *cobra.Command) error { return needs(cmd, "reason") },
		func() operation {
			return messages("bury", "buried", "Bury",
				func(ctx context.Context, topic string, which admin.Selection, progress func(admin.Progress)) (admin.Progress, error) {
					return a.admin.Bury(ctx, topic, which, reason, progress)
				})
		})
	cmd.Flags().Var(text(&reason, "TEXT"), "reason", "why, for those who find the dead letter")
	cmd.Example = `redisdelay bury orders 01K4Z2V3W4X5Y6Z7A8B9C0D1E2 --reason "crashes the handler"`
	return cmd
}

// due is the flags for a due time.
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
	return apart(cmd, "in", "at")
}

// needed is check of a command that needs one.
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
