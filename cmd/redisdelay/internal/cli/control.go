package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

// someGroups returns a command for one group or, with --all, for all of a topic.
func (a *app) someGroups(use, short string, run func(ctx context.Context, topic, group string) error) *cobra.Command {
	all := false
	cmd := a.command(use+" TOPIC [GROUP]", short, func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 2 && all:
			return usagef("--all cannot be given with a GROUP: want one of them")
		case len(args) == 1 && !all:
			return usagef("GROUP is missing: want the name of a group, or --all for all groups")
		}
		return nil
	}, func(ctx context.Context, args []string) error {
		return run(ctx, args[0], append(args, redisdelay.AllGroups)[1])
	})
	cmd.Flags().BoolVar(&all, "all", false, "all groups of the topic")
	return cmd
}

// result reports what was done with a group.
func (a *app) result(name, topic, group, format string, args ...any) error {
	if a.json() {
		return a.object(actJSON{Topic: topic, Act: name, Group: group, Complete: true})
	}
	return a.printf("%s\n", fmt.Sprintf(format, args...))
}

func nameOf(topic, group string) string {
	if group == redisdelay.AllGroups {
		return fmt.Sprintf("all groups of topic %q", topic)
	}
	return fmt.Sprintf("group %q of topic %q", group, topic)
}

func (a *app) pause() *cobra.Command {
	var p redisdelay.PauseOptions
	cmd := a.someGroups("pause", "Stop a group from getting messages; publishing goes on",
		func(ctx context.Context, topic, group string) error {
			if p.By == "" {
				p.By = whoami()
			}
			if err := a.admin.Pause(ctx, topic, group, p); err != nil {
				return err
			}
			until := "until somebody resumes"
			if p.For > 0 {
				until = "for " + humanize.Duration(p.For)
			}
			return a.result("pause", topic, group, "paused %s %s", nameOf(topic, group), until)
		})
	cmd.Flags().Var(duration(&p.For, time.Millisecond), "for", "end by itself after this time")
	cmd.Flags().Var(text(&p.Reason, "TEXT"), "reason", "why, for those who wonder")
	cmd.Flags().Var(text(&p.By, "NAME"), "by", "who (default user@host)")
	cmd.Example = "redisdelay pause orders billing --for 1h --reason migration"
	return cmd
}

func whoami() string {
	name := cmp.Or(os.Getenv("SUDO_USER"), os.Getenv("USER"))
	if u, err := user.Current(); err == nil {
		name = cmp.Or(name, u.Username)
	}
	host, _ := os.Hostname()
	return cmp.Or(name, "somebody") + "@" + host
}

func (a *app) resume() *cobra.Command {
	return a.someGroups("resume", "End a pause", func(ctx context.Context, topic, group string) error {
		if err := a.admin.Resume(ctx, topic, group); err != nil {
			return err
		}
		paused, err := a.paused(ctx, topic, group)
		switch {
		case err != nil:
			return err
		case paused != "" && group != redisdelay.AllGroups: // with all groups
			return fmt.Errorf("still paused: %s; %s ends that", paused,
				commandLine(append([]string{"redisdelay", "resume"}, ordered([]string{"--all"}, topic)...)...))
		case paused != "":
			a.say("redisdelay resume: still paused by itself: %s\n", paused)
		}
		return a.result("resume", topic, group, "resumed %s", nameOf(topic, group))
	})
}

// paused says who has paused a group or, of all groups, which; "" if nobody has.
func (a *app) paused(ctx context.Context, topic, group string) (string, error) {
	groups, err := a.admin.Groups(ctx, topic)
	var paused []string
	for _, g := range groups {
		switch {
		case g.Pause == nil || g.State != admin.GroupActive:
		case g.Group == group:
			return pauseWords(g.Pause, g.At), err
		case group == redisdelay.AllGroups:
			paused = append(paused, fmt.Sprintf("group %q, %s", g.Group, pauseWords(g.Pause, g.At)))
		}
	}
	return strings.Join(paused, "; "), err
}

func (a *app) drain() *cobra.Command {
	var timeout time.Duration
	cmd := a.someGroups("drain", "Wait until a group has nothing that is due, waits for a retry or is in delivery",
		func(ctx context.Context, topic, group string) error {
			paused, err := a.paused(ctx, topic, group)
			if err != nil {
				return err
			}
			if paused != "" {
				a.say("redisdelay drain: paused, so what waits stays: %s\n", paused)
			}
			if timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, timeout)
				defer cancel()
			}
			var remaining redisdelay.Remaining
			err = a.admin.Drain(ctx, topic, group, func(b redisdelay.Remaining) {
				remaining = b
				if a.terminal.err {
					a.say("%s%s", clearLine, remainingText(b))
				}
			})
			if a.terminal.err {
				a.say("%s", clearLine)
			}
			if err != nil && ctx.Err() != nil {
				return fmt.Errorf("stopped waiting for %s: %s", nameOf(topic, group), remainingText(remaining))
			}
			if err != nil {
				return err
			}
			return a.result("drain", topic, group, "%s: nothing is left", nameOf(topic, group))
		})
	cmd.Flags().Var(duration(&timeout, time.Millisecond), "timeout", "wait no longer, exit 1")
	return cmd
}

func remainingText(b redisdelay.Remaining) string {
	return fmt.Sprintf("%s due, %s queued, %s in delivery", humanize.Number(b.Due), humanize.Number(b.Queued), humanize.Number(b.InDelivery))
}

func (a *app) limit() *cobra.Command {
	var limits redisdelay.GroupLimits
	var none bool
	cmd := a.command("limit TOPIC GROUP", "Limit how many messages a group gets, over all its consumers",
		func(cmd *cobra.Command, _ []string) error {
			given := cmd.Flags().Changed("max-in-flight") || cmd.Flags().Changed("rate")
			switch {
			case none && given:
				return usagef("--none cannot be given with a limit: want one or the other")
			case !none && !given:
				return usagef("a limit is missing: want --max-in-flight N, --rate N/s, or --none")
			case cmd.Flags().Changed("burst") && !cmd.Flags().Changed("rate"):
				return usagef("--burst needs --rate: want --rate N/s")
			}
			return nil
		}, func(ctx context.Context, args []string) error {
			if err := a.admin.LimitGroup(ctx, args[0], args[1], limits); err != nil {
				return err
			}
			if none {
				return a.result("limit", args[0], args[1], "%s has no limit", nameOf(args[0], args[1]))
			}
			return a.result("limit", args[0], args[1], "limited %s to %s", nameOf(args[0], args[1]), limitsText(&limits))
		})
	cmd.Flags().Var(number(&limits.MaxInFlight, 1, 1_000_000_000), "max-in-flight", "how many messages all consumers may hold at once")
	cmd.Flags().Var(rate(&limits.Rate), "rate", "how many messages they may get in a time: 100/s, 30/m or 10/5s")
	cmd.Flags().Var(number(&limits.Rate.Burst, 1, 1_000_000_000), "burst", "how many at once after idling (default: as many as the rate has)")
	cmd.Flags().BoolVar(&none, "none", false, "end the limits")
	cmd.Long = "Limits replace those that the group has: what is not given is not limited any more."
	cmd.Example = "redisdelay limit orders billing --rate 100/s --max-in-flight 20"
	return cmd
}

// rate is a flag such as 100/s.
func rate(to *redisdelay.Rate) *value[redisdelay.Rate] {
	return &value[redisdelay.Rate]{to: to, name: "N/TIME", parse: func(s string) (redisdelay.Rate, error) {
		want := errors.New("want a rate such as 100/s, 30/m or 10/5s")
		left, right, found := strings.Cut(s, "/")
		n, err := strconv.Atoi(left)
		if !found || err != nil || n < 1 || right == "" {
			return *to, want
		}
		if right[0] < '0' || right[0] > '9' {
			right = "1" + right
		}
		per, err := humanize.ParseDuration(right)
		if err != nil || per < time.Millisecond {
			return *to, want
		}
		return redisdelay.Rate{Messages: n, Per: per, Burst: to.Burst}, nil
	}}
}
