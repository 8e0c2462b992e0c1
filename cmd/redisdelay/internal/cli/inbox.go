package cli

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/redisdelay/watermill-redisdelay/inbox"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// inbox returns the commands for the inbox.
func (a *app) inbox() *cobra.Command {
	return parentCommand("inbox", "Store what programs write to the inbox, or show what waits in it", a.inboxRun(), a.inboxShow(), a.inboxRejected())
}

func (a *app) openInbox(change func(*inbox.Config)) (*inbox.Inbox, error) {
	config := inbox.Config{Client: a.client, Prefix: a.prefix}
	change(&config)
	return inbox.New(config, outageLog{app: a, name: "inbox"})
}

func (a *app) inboxShow() *cobra.Command {
	return a.command("show", "Count the entries that wait in the inbox or were rejected, and show the longest wait", nil,
		func(ctx context.Context, _ []string) error {
			s, err := a.admin.Inbox(ctx)
			if err != nil {
				return err
			}
			oldest := ""
			if s.Oldest > 0 {
				oldest = ", the first for " + humanize.Duration(s.Oldest)
			}
			return a.reply(s, "%s%s; %s", humanize.Count(int(s.Waiting), "entry waits", "entries wait"), oldest,
				humanize.Count(int(s.Rejected), "was rejected", "were rejected"))
		})
}

func (a *app) inboxRejected() *cobra.Command {
	most := 100
	cmd := a.command("rejected", "Show entries that could not be stored and the reasons, newest first", nil,
		func(ctx context.Context, _ []string) error {
			i, err := a.openInbox(func(*inbox.Config) {})
			if err != nil {
				return err
			}
			list, err := i.Rejected(ctx, most)
			if err != nil {
				return err
			}
			return a.showRejected(list)
		})
	cmd.Flags().Var(number(&most, 1, 10_000), "limit", "show at most this many")
	return cmd
}

func (a *app) showRejected(list []inbox.Rejection) error {
	g := a.newGrid("ENTRY", "REJECTED AT", "REASON", "FIELDS")
	for _, r := range list {
		var fields []string
		for _, name := range slices.Sorted(maps.Keys(r.Fields)) {
			fields = append(fields, name+"="+humanize.Cut(r.Fields[name], 40))
		}
		g.add(r.ID, nominal(r.At), a.cut(r.Reason, 60), a.cut(strings.Join(fields, " "), 80))
	}
	return printList(a, list, g, "no entry was rejected")
}

type inboxRunJSON struct {
	Operation string
	Stored    int
	Rejected  int
	Changed   int
}

// observer counts the entries that an Inbox handles, in several goroutines.
func (done *inboxRunJSON) observer() observe.Observer {
	var mu sync.Mutex
	return observe.Observer{
		Published: func(e observe.Published) {
			mu.Lock()
			defer mu.Unlock()
			if e.Err != nil {
				done.Rejected += e.Messages
			} else {
				done.Stored += e.Messages
			}
		},
		Changed: func(e observe.Changed) {
			mu.Lock()
			defer mu.Unlock()
			if e.Err == nil {
				done.Changed++
			}
		},
	}
}

func (a *app) inboxRun() *cobra.Command {
	done := inboxRunJSON{Operation: "run"}
	partitions := 0
	cmd := a.command("run", "Store the entries of the inbox as delayed messages, until a signal", nil,
		func(ctx context.Context, _ []string) error {
			i, err := a.openInbox(func(c *inbox.Config) { c.Partitions, c.Observer = partitions, done.observer() })
			if err != nil {
				return err
			}
			a.say("redisdelay inbox run: storing what is in the inbox, until a signal\n")
			if err := i.Run(ctx); err != nil {
				return err
			}
			return a.reply(done, "stored %s, changed %s by key, rejected %s", humanize.Count(done.Stored, "message", "messages"),
				humanize.Number(done.Changed), humanize.Count(done.Rejected, "entry", "entries"))
		})
	cmd.Flags().IntVar(&partitions, "partitions", 1, "the least number of partitions of each topic")
	cmd.Long = "Any number of processes may run it. See docs/use/inbox.md for the fields of an entry."
	return cmd
}
