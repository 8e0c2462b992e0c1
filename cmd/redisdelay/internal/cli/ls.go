package cli

import (
	"cmp"
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

func (a *app) ls() *cobra.Command {
	l := &lister{app: a, limit: admin.DefaultLimit}
	cmd := a.command("ls TOPIC", "List messages that are scheduled, waiting, in delivery or dead",
		func(cmd *cobra.Command, _ []string) error { return l.check(cmd) }, l.run)
	l.filter = a.newFilter(cmd, admin.Scheduled, admin.Waiting, admin.InDelivery, admin.Dead)
	l.flags(cmd)
	cmd.Example = "redisdelay ls orders --due-before 10m\n" +
		"redisdelay ls orders --in-delivery --group billing\nredisdelay ls orders --all -o json"
	return cmd
}

// lister lists messages.
type lister struct {
	app    *app
	cmd    *cobra.Command
	filter *filter
	limit  int
	all    bool
	count  bool
}

func (l *lister) flags(cmd *cobra.Command) {
	l.cmd = cmd
	cmd.Flags().Var(number(&l.limit, 1, admin.MaxLimit), "limit", "at most this many")
	cmd.Flags().BoolVar(&l.all, "all", false, "all messages, page by page")
	cmd.Flags().BoolVar(&l.count, "count", false, "only count them")
}

func (l *lister) check(cmd *cobra.Command) error {
	for _, flags := range [][]string{{"limit", "all"}, {"limit", "count"}, {"all", "count"}, {"cursor", "count"}} {
		if err := exclusive(cmd, flags...); err != nil {
			return err
		}
	}
	return l.filter.check(cmd)
}

func (l *lister) run(ctx context.Context, args []string) error {
	a, q := l.app, l.filter.query()
	if l.count {
		return l.runCount(ctx, args[0], q)
	}
	if q.Limit = l.limit; l.all {
		q.Limit = admin.MaxLimit
	}
	for {
		page, err := a.admin.Entries(ctx, args[0], q)
		if err != nil {
			return err
		}
		if err := a.showEntries(page.Entries, q.Set); err != nil { // each page is a table of its own width
			return err
		}
		if q.Cursor = page.Cursor; q.Cursor == "" {
			return nil
		}
		if !l.all {
			break
		}
	}
	return a.reply(cursorJSON{q.Cursor}, "there are more: %s", resumeLine(l.cmd, args, q.Cursor))
}

// runCount prints the number of matching messages.
func (l *lister) runCount(ctx context.Context, topic string, q admin.Query) error {
	n, err := l.app.admin.Count(ctx, topic, q)
	if err != nil {
		return err
	}
	return l.app.reply(countJSON{topic, n}, "%s", humanize.Number(n))
}

// showEntries prints the entries of a set.
func (a *app) showEntries(entries []admin.Entry, set admin.Set) error {
	at := map[admin.Set]string{admin.InDelivery: "LEASED UNTIL", admin.Dead: "DEAD SINCE"}[set]
	if at == "" {
		at = "DUE"
	}
	g := a.newGrid("ID", "KEY", "ORDERING KEY", "GROUP", "#"+at, "IN LINE", "+AT",
		"#ATTEMPTS", "+PUBLISHED", "#+PARTITION", "#SIZE", "REASON", "PAYLOAD")
	now := a.now()
	for _, e := range entries {
		g.add(a.short(e.ID), a.cut(e.Key, 40), a.cut(e.OrderingKey, 40), e.Group, humanize.Relative(e.At, now), yes(e.InLine),
			humanize.Full(e.At, now), unlessZero(e.Attempts), humanize.Full(e.PublishedAt, now), count(e.Partition), humanize.Bytes(int64(e.Size)),
			a.cut(e.Reason, 60), a.preview(e.Content))
	}
	g.spare = []string{"SIZE", "ATTEMPTS", "ORDERING KEY", "KEY", "PAYLOAD"}
	return printList(a, entries, g, "no %s message matches", cmp.Or(set, admin.Scheduled))
}

// yes formats a bool in a table.
func yes(is bool) string {
	if is {
		return "yes"
	}
	return ""
}

// preview returns the start of a payload, on one line.
func (a *app) preview(c admin.Content) any {
	switch {
	case c.Message != nil:
		payload := string(c.Message.Payload)
		if !a.wide && len(payload) > 200 {
			payload = payload[:200] + "…" // cut again below, by characters
		}
		return a.cut(payload, 60)
	default:
		return paint(warnStyle, humanize.Cut(plain(c.Err), 60))
	}
}

// cut shortens a text to a number of displayed characters.
func (a *app) cut(text string, length int) string {
	if a.wide {
		return text
	}
	return humanize.Start(text, length)
}

func (a *app) localNow(at time.Time) time.Time { return at.In(a.now().Location()) }
