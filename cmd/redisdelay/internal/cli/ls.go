package cli

import (
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
	cmd.Example = "redisdelay ls orders --due-before 10m\nredisdelay ls orders --key order-42\n" +
		"redisdelay ls orders --in-delivery --group billing\nredisdelay ls orders --all -o json"
	return cmd
}

// lister lists messages.
type lister struct {
	app    *app
	filter *filter
	key    string
	limit  int
	all    bool
	count  bool
	anySet bool // no set was chosen
}

func (l *lister) flags(cmd *cobra.Command) {
	cmd.Flags().Var(text(&l.key, "KEY"), "key", "only the message with this key, in any state")
	cmd.Flags().Var(number(&l.limit, 1, admin.MaxLimit), "limit", "at most this many")
	cmd.Flags().BoolVar(&l.all, "all", false, "all messages, page by page")
	cmd.Flags().BoolVar(&l.count, "count", false, "only count them")
}

func (l *lister) check(cmd *cobra.Command) error {
	for _, flags := range [][]string{{"limit", "all"}, {"limit", "count"}, {"all", "count"}, {"cursor", "count"}, {"key", "count"}} {
		if err := apart(cmd, flags...); err != nil {
			return err
		}
	}
	l.anySet = len(l.filter.sets) > 0
	for _, chosen := range l.filter.sets {
		l.anySet = l.anySet && !*chosen
	}
	if l.key != "" && (l.filter.given(cmd) || l.filter.cursor != "") {
		return usagef("--key names one message: want no other filter with it")
	}
	return l.filter.check(cmd)
}

func (l *lister) run(ctx context.Context, args []string) error {
	a, q := l.app, l.filter.query()
	switch {
	case l.key != "":
		return l.runKey(ctx, args[0])
	case l.all:
		return l.runAll(ctx, args[0], q)
	case l.count:
		return l.runCount(ctx, args[0], q)
	}
	q.Limit = l.limit
	page, err := a.admin.Entries(ctx, args[0], q)
	if err != nil {
		return err
	}
	if err := l.show(page.Entries, q.In); err != nil || page.Cursor == "" {
		return err
	}
	if a.json() {
		return a.object(cursorJSON{page.Cursor})
	}
	return a.printf("\nthere are more: --cursor %s\n", page.Cursor)
}

// runAll shows all pages. Each is a table of its own width.
func (l *lister) runAll(ctx context.Context, topic string, q admin.Query) error {
	var page []admin.Entry
	shown := false
	for entry, err := range l.app.admin.All(ctx, topic, q) {
		if err != nil {
			return err
		}
		if page = append(page, entry); len(page) == admin.MaxLimit {
			if err := l.show(page, q.In); err != nil {
				return err
			}
			page, shown = page[:0], true
		}
	}
	if shown && len(page) == 0 {
		return nil
	}
	return l.show(page, q.In)
}

// runCount says how many match.
func (l *lister) runCount(ctx context.Context, topic string, q admin.Query) error {
	n, err := l.app.admin.Count(ctx, topic, q)
	if err != nil {
		return err
	}
	if l.app.json() {
		return l.app.object(countJSON{topic, n})
	}
	return l.app.printf("%s\n", humanize.Number(n))
}

// runKey shows the message with a key, in each place where it stands.
func (l *lister) runKey(ctx context.Context, topic string) error {
	m, err := l.app.admin.Message(ctx, topic, admin.Ref{Key: l.key})
	if err != nil {
		return err
	}
	var found []admin.Entry
	for _, e := range places(m) {
		if (l.anySet || e.Set == l.filter.set()) && (l.filter.group == "" || e.Group == l.filter.group) {
			found = append(found, e)
		}
	}
	return l.show(found, "")
}

// places returns an entry for each place where a message stands.
func places(m admin.Message) []admin.Entry {
	entry := admin.Entry{
		ID: m.ID, Key: m.Key, OrderingKey: m.OrderingKey, Topic: m.Topic, Partition: m.Partition, Set: admin.Scheduled, At: m.DueAt,
		PublishedAt: m.PublishedAt, Size: m.Size, Content: m.Content,
	}
	if m.Scheduled {
		return []admin.Entry{entry}
	}
	var found []admin.Entry
	for _, g := range m.Groups {
		e := entry
		e.Group, e.State, e.Attempts, e.Reason = g.Group, g.State, g.Attempts, g.Reason
		switch {
		case !g.BuriedAt.IsZero():
			e.Set, e.At = admin.Dead, g.BuriedAt
		case !g.LeasedUntil.IsZero():
			e.Set, e.At = admin.InDelivery, g.LeasedUntil
		case !g.DueAt.IsZero():
			e.Set, e.At, e.InLine = admin.Waiting, g.DueAt, g.InLine
		default:
			continue // done
		}
		found = append(found, e)
	}
	return found
}

// show shows entries of a set; of several if it is "".
func (l *lister) show(entries []admin.Entry, set admin.Set) error {
	a := l.app
	if a.json() {
		for _, e := range entries {
			if err := a.object(inEntry(e)); err != nil {
				return err
			}
		}
		return nil
	}
	if len(entries) == 0 {
		return a.printf("no message matches\n")
	}
	return a.showEntries(entries, set)
}

func (a *app) showEntries(entries []admin.Entry, set admin.Set) error {
	at := map[admin.Set]string{admin.InDelivery: "LEASED UNTIL", admin.Dead: "DIED"}[set]
	if at == "" {
		at = "DUE"
	}
	g := a.newGrid("ID", "KEY", "ORDERING KEY", "SET", "GROUP", "#"+at, "IN LINE", "+AT", "#ATTEMPTS", "+PUBLISHED", "#+PARTITION", "#SIZE", "REASON", "PAYLOAD")
	now := a.now()
	for _, e := range entries {
		shownSet := ""
		if set == "" {
			shownSet = string(e.Set)
		}
		attempts := ""
		if e.Attempts > 0 {
			attempts = humanize.Number(e.Attempts)
		}
		g.add(a.short(e.ID), a.cut(e.Key, 40), a.cut(e.OrderingKey, 40), shownSet, e.Group, humanize.Relative(e.At, now), yes(e.InLine),
			humanize.Full(e.At, now), attempts, humanize.Full(e.PublishedAt, now), count(e.Partition), humanize.Bytes(int64(e.Size)),
			a.cut(e.Reason, 60), a.preview(e.Content))
	}
	g.spare = []string{"SIZE", "ATTEMPTS", "ORDERING KEY", "KEY", "PAYLOAD"}
	return a.print(g.without("KEY", "ORDERING KEY", "SET", "GROUP", "IN LINE", "ATTEMPTS", "REASON"))
}

// yes is how tables show what is the case.
func yes(is bool) string {
	if is {
		return "yes"
	}
	return ""
}

// preview is the beginning of a payload, on one line.
func (a *app) preview(c admin.Content) any {
	switch {
	case c.Message != nil:
		payload := string(c.Message.Payload)
		if !a.wide && len(payload) > 200 {
			payload = payload[:200] + "…" // cut again below, by characters
		}
		return a.cut(payload, 60)
	case c.Err != nil:
		return paint(warnStyle, "cannot be decoded: "+humanize.Cut(plain(c.Err), 60))
	default:
		return paint(warnStyle, "no body")
	}
}

// cut shortens a text, as it is shown, to so many characters.
func (a *app) cut(text string, length int) string {
	if a.wide {
		return text
	}
	return humanize.Start(text, length)
}

func (a *app) localNow(at time.Time) time.Time { return at.In(a.now().Location()) }
