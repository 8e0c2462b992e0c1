package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

// dead returns the commands for dead messages.
func (a *app) dead() *cobra.Command {
	requeue := a.deadCommand("requeue", "Make dead messages due again, and reset their deliveries",
		func() operation { return operation{"requeue", "requeued", "Requeue", "dead message", a.admin.Requeue} })
	discard := a.deadCommand("discard", "Delete dead messages",
		func() operation {
			return operation{"discard", "discarded", "Discard for good", "dead message", a.admin.Discard}
		})
	return parentCommand("dead", "List, count, requeue or discard dead messages", a.deadLs(), a.deadReasons(), a.deadShow(), requeue, discard)
}

func (a *app) deadLs() *cobra.Command {
	l := &lister{app: a, limit: admin.DefaultLimit}
	cmd := a.command("ls TOPIC", "List dead messages with their reasons",
		func(cmd *cobra.Command, _ []string) error { return l.check(cmd) }, l.run)
	l.filter = a.newFilter(cmd, admin.Dead)
	l.flags(cmd)
	cmd.Example = "redisdelay dead ls orders --since 2h --reason timeout"
	return cmd
}

func (a *app) deadShow() *cobra.Command {
	return a.showCommand("show", "Show a dead message and its state for each group")
}

func (a *app) deadReasons() *cobra.Command {
	var f *filter
	cmd := a.command("reasons TOPIC", "Count dead messages by reason and group, largest count first",
		func(cmd *cobra.Command, _ []string) error { return f.check(cmd) },
		func(ctx context.Context, args []string) error { return a.countReasons(ctx, args[0], f.query()) })
	f = a.newFilter(cmd, admin.Dead)
	cmd.Long = "… stands for an id or a long number, which differ from message to message."
	cmd.Example = "redisdelay dead reasons orders --since 2h"
	return cmd
}

func (a *app) countReasons(ctx context.Context, topic string, q admin.Query) error {
	bar := a.newBar("counted", 0)
	reasons, err := a.admin.Reasons(ctx, topic, q, func(n int) { bar.update(admin.Progress{Done: n}) })
	bar.clear()
	if err != nil {
		return err
	}
	g := a.newGrid("#COUNT", "GROUP", "#OLDEST", "#NEWEST", "REASON")
	list, now := make([]reasonJSON, len(reasons)), a.now()
	for i, r := range reasons {
		list[i] = reasonJSON{topic, r}
		text := a.cut(r.Reason, 100)
		if r.Others {
			text = "(other reasons)"
		}
		g.add(humanize.Number(r.Count), r.Group, humanize.Relative(r.Oldest, now), humanize.Relative(r.Newest, now), text)
	}
	return printList(a, list, g, "no message matches")
}

func (a *app) deadCommand(name, short string, make func() operation) *cobra.Command {
	cmd := a.bulkCommand(name+" TOPIC [ID...]", short, []admin.Set{admin.Dead}, nil, make)
	cmd.Example = "redisdelay dead " + name + " orders --all --reason timeout"
	return cmd
}
