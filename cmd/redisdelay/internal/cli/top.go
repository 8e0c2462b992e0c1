package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/cmd/redisdelay/internal/top"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

// sampleJSON is a topic at a moment, with changes a second.
type sampleJSON struct {
	statsJSON
	ScheduledPerS float64 `json:"scheduledPerSecond"`
	WaitingPerS   float64 `json:"waitingPerSecond"`
	DeadPerS      float64 `json:"deadPerSecond"`
}

// unreadableJSON stands for a topic that could not be read.
type unreadableJSON struct {
	Topic string `json:"topic"`
	Error string `json:"error"`
}

func (a *app) top() *cobra.Command {
	interval, samples := time.Second, 0
	cmd := a.command("top [TOPIC]", "Watch topics, or the groups of one: backlog, lateness, dead, and how they change",
		func(cmd *cobra.Command, _ []string) error {
			if !a.json() && (!a.terminal.in || !a.terminal.out) {
				return usagef("top needs a terminal: want -o json to write samples")
			}
			if !a.json() && cmd.Flags().Changed("samples") {
				return usagef("--samples is for -o json: want no --samples, q quits")
			}
			return nil
		}, func(ctx context.Context, args []string) error {
			load := a.admin.AllStats
			if len(args) > 0 {
				load = func(ctx context.Context) ([]admin.TopicStats, error) { return a.statsOf(ctx, args) }
			}
			if a.json() {
				return a.sampleTopics(ctx, load, interval, samples)
			}
			config := top.Config{Load: load, Interval: interval, Where: a.target.Where(), Describe: a.describe}
			if len(args) > 0 {
				config.Topic = args[0]
				if _, err := load(ctx); err != nil {
					return err
				}
			}
			return top.Run(ctx, config)
		})
	cmd.Flags().Var(duration(&interval, 100*time.Millisecond), "interval", "time between two looks")
	cmd.Flags().Var(number(&samples, 1, 1_000_000_000), "samples", "end after so many (with -o json)")
	cmd.Example = "redisdelay top\nredisdelay top orders\nredisdelay top -o json --samples 10"
	return cmd
}

// sampleTopics writes samples until ctx ends.
func (a *app) sampleTopics(ctx context.Context, load func(context.Context) ([]admin.TopicStats, error), interval time.Duration, samples int) error {
	histories := map[string]*top.History{}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for n := 1; ; n++ {
		all, err := load(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		for _, s := range all {
			if s.Err != nil {
				if err := a.object(unreadableJSON{s.Topic, plain(s.Err)}); err != nil {
					return err
				}
				continue
			}
			if histories[s.Topic] == nil {
				histories[s.Topic] = &top.History{}
			}
			h := histories[s.Topic]
			h.Add(s.At, top.Total(s))
			r := h.Rates()
			if err := a.object(sampleJSON{inStats(s), r.Scheduled, r.Waiting, r.Dead}); err != nil {
				return err
			}
		}
		if n == samples {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// describe returns lines about a group, for top.
func (a *app) describe(g admin.GroupStats) []string {
	lines := []string{"state      " + stateOf(g)}
	add := func(name, value string) {
		if value != "" {
			lines = append(lines, fmt.Sprintf("%-10s %s", name, value))
		}
	}
	if g.Pause != nil {
		add("paused", pauseWords(g.Pause, g.At))
	}
	add("limits", limitsText(g.Limits))
	if g.InLine > 0 {
		add("in line", humanize.Count(g.InLine, "message", "messages"))
	}
	if g.HaltedKeys > 0 {
		add("halted", humanize.Count(g.HaltedKeys, "ordering key", "ordering keys"))
	}
	add("lease over", humanize.Count(g.LeaseExpired, "message", "messages"))
	add("next retry", humanize.Relative(g.NextRetry, g.At))
	add("oldest", humanize.Relative(g.OldestUnacked, g.At))
	add("ends", humanize.Relative(g.ExpiresAt, g.At))
	if len(g.Consumers) == 0 {
		add("consumers", "none is alive")
	}
	for _, c := range g.Consumers {
		add("consumer", fmt.Sprintf("%s, since %s, seen %s, holds %s", c.Name, humanize.Relative(c.Since, g.At),
			humanize.Relative(c.Seen, g.At), humanize.Count(len(c.Holds), "message", "messages")))
	}
	return lines
}
