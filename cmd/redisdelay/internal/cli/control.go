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

// groupsCommand returns a command for one group or, with --all, for all of a topic.
func (a *app) groupsCommand(use, short string, run func(ctx context.Context, topic, group string) error) *cobra.Command {
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

// result reports the result of an operation on a group.
func (a *app) result(name, topic, group, format string, args ...any) error {
	if group == redisdelay.AllGroups {
		group = ""
	}
	return a.reply(operationJSON{Topic: topic, Operation: name, Group: group, Complete: true}, format, args...)
}

func nameOf(topic, group string) string {
	if group == redisdelay.AllGroups {
		return fmt.Sprintf("all groups of topic %q", topic)
	}
	return fmt.Sprintf("group %q of topic %q", group, topic)
}

func (a *app) pause() *cobra.Command {
	var p redisdelay.Pause
	cmd := a.groupsCommand("pause", "Stop deliveries to a group; publishing continues",
		func(ctx context.Context, topic, group string) error {
			p.By = cmp.Or(p.By, whoami())
			if err := a.admin.PauseGroup(ctx, topic, group, p); err != nil {
				return err
			}
			until := "until resumed"
			if p.For > 0 {
				until = "for " + humanize.Duration(p.For)
			}
			return a.result("pause", topic, group, "paused %s %s", nameOf(topic, group), until)
		})
	cmd.Flags().Var(duration(&p.For, time.Millisecond), "for", "end after this time")
	cmd.Flags().Var(text(&p.Reason, "TEXT"), "reason", "the reason that others see")
	cmd.Flags().Var(text(&p.By, "NAME"), "by", "the name that others see (default user@host)")
	cmd.Example = "redisdelay pause orders billing --for 1h --reason migration"
	return cmd
}

func whoami() string {
	name := cmp.Or(os.Getenv("SUDO_USER"), os.Getenv("USER"))
	if u, err := user.Current(); err == nil {
		name = cmp.Or(name, u.Username)
	}
	host, _ := os.Hostname()
	return cmp.Or(name, "unknown") + "@" + host
}

func (a *app) resume() *cobra.Command {
	return a.groupsCommand("resume", "End a pause", func(ctx context.Context, topic, group string) error {
		if err := a.admin.ResumeGroup(ctx, topic, group); err != nil {
			return err
		}
		paused, err := a.paused(ctx, topic, group)
		switch {
		case err != nil:
			return err
		case paused != "" && group != redisdelay.AllGroups: // all groups are paused
			return fmt.Errorf("still paused: %s; %s ends that", paused,
				commandLine(append([]string{"redisdelay", "resume"}, ordered([]string{"--all"}, topic)...)...))
		case paused != "":
			a.say("redisdelay resume: still paused by itself: %s\n", paused)
		}
		return a.result("resume", topic, group, "resumed %s", nameOf(topic, group))
	})
}

// paused describes the pause of a group. For all groups, it lists the paused ones. It returns "" if there is no pause.
func (a *app) paused(ctx context.Context, topic, group string) (string, error) {
	groups, err := a.admin.Groups(ctx, topic)
	var paused []string
	for _, g := range groups {
		switch {
		case g.Pause == nil || g.State != admin.GroupActive:
		case g.Group == group:
			return pauseText(g.Pause, g.At), err
		case group == redisdelay.AllGroups:
			paused = append(paused, fmt.Sprintf("group %q, %s", g.Group, pauseText(g.Pause, g.At)))
		}
	}
	return strings.Join(paused, "; "), err
}

func (a *app) drain() *cobra.Command {
	var timeout time.Duration
	cmd := a.groupsCommand("drain", "Wait until no message of a group is due, waits for a retry or is in delivery",
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
			var remaining redisdelay.DrainProgress
			err = a.admin.DrainGroup(ctx, topic, group, func(b redisdelay.DrainProgress) {
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
	cmd.Flags().Var(duration(&timeout, time.Millisecond), "timeout", "exit 1 after this time")
	return cmd
}

func remainingText(b redisdelay.DrainProgress) string {
	return fmt.Sprintf("%s due, %s waiting, %s in delivery", humanize.Number(b.Due), humanize.Number(b.Waiting), humanize.Number(b.InDelivery))
}

func (a *app) limit() *cobra.Command {
	var limits redisdelay.GroupLimits
	var none, keepHalts bool
	cmd := a.command("limit TOPIC GROUP", "Limit the messages that all consumers of a group receive together",
		func(cmd *cobra.Command, _ []string) error {
			keepHalts = !none && !cmd.Flags().Changed("halt-keys")
			given := cmd.Flags().Changed("max-in-flight") || cmd.Flags().Changed("rate") || cmd.Flags().Changed("halt-keys")
			switch {
			case none && given:
				return usagef("--none cannot be given with a limit: want one or the other")
			case !none && !given:
				return usagef("a limit is missing: want --max-in-flight N, --rate N/s, --halt-keys, or --none")
			case cmd.Flags().Changed("burst") && !cmd.Flags().Changed("rate"):
				return usagef("--burst needs --rate: want --rate N/s")
			}
			return nil
		}, func(ctx context.Context, args []string) error {
			if keepHalts {
				g, err := a.group(ctx, args[0], args[1])
				if err != nil {
					return err
				}
				limits.HaltsKeys = g.Limits != nil && g.Limits.HaltsKeys
			}
			if err := a.admin.LimitGroup(ctx, args[0], args[1], limits); err != nil {
				return err
			}
			if limits == (redisdelay.GroupLimits{}) {
				return a.result("limit", args[0], args[1], "%s has no limit", nameOf(args[0], args[1]))
			}
			return a.result("limit", args[0], args[1], "limited %s: %s", nameOf(args[0], args[1]), limitsText(&limits))
		})
	cmd.Flags().Var(number(&limits.MaxInFlight, 1, 1_000_000_000), "max-in-flight", "at most this many messages in delivery")
	cmd.Flags().Var(rate(&limits.Rate), "rate", "at most this many deliveries in a time: 100/s, 30/m or 10/5s")
	cmd.Flags().Var(number(&limits.Rate.Burst, 1, 1_000_000_000), "burst", "at most this many at once after a pause (default: the N of the rate)")
	cmd.Flags().BoolVar(&limits.HaltsKeys, "halt-keys", false, "a dead message halts its ordering key until it is requeued or discarded")
	cmd.Flags().BoolVar(&none, "none", false, "remove all limits, and halt no keys")
	cmd.Long = "The limits replace those of the group: a limit that is not given is removed. Without --halt-keys, dead messages halt keys\n" +
		"as before. With --halt-keys=false or --none, halted keys continue."
	cmd.Example = "redisdelay limit orders billing --rate 100/s --max-in-flight 20"
	return cmd
}

// rate is the value of a flag such as 100/s.
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

func (a *app) retire() *cobra.Command {
	var force, yes, dryRun bool
	cmd := a.command("retire TOPIC GROUP", "Remove a group from a topic, and free all that it holds",
		func(*cobra.Command, []string) error {
			if !yes && !dryRun && !a.terminal.in {
				return errNotAsked
			}
			return nil
		}, func(ctx context.Context, args []string) error {
			g, err := a.group(ctx, args[0], args[1])
			if err == nil && !force {
				err = needsForce("retires it", g)
			}
			if err != nil {
				return err
			}
			held := g.Ready + g.InLine + g.Postponed + g.InDelivery + g.Dead
			if dryRun {
				return a.reply(operationJSON{Topic: args[0], Operation: "retire", Group: args[1], Matching: &held, DryRun: true},
					"%s holds %s; nothing is done: this is a dry run", nameOf(args[0], args[1]), humanize.Count(held, "message", "messages"))
			}
			if !yes {
				question := fmt.Sprintf("Retire %s? It gives up %s.", nameOf(args[0], args[1]), humanize.Count(held, "message", "messages"))
				if err := a.confirm(ctx, question); err != nil {
					return err
				}
			}
			return a.retireNow(ctx, args[0], args[1], force)
		})
	cmd.Flags().BoolVar(&force, "force", false, "even if its consumers are alive")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only count the messages that it would free")
	return cmd
}

func (a *app) group(ctx context.Context, topic, group string) (admin.GroupStats, error) {
	groups, err := a.admin.Groups(ctx, topic)
	if err != nil {
		return admin.GroupStats{}, err
	}
	for _, g := range groups {
		if g.Group == group {
			return g, nil
		}
	}
	return admin.GroupStats{}, fmt.Errorf("%w: %q", admin.ErrGroupNotFound, group)
}

// needsForce returns an error if a group has live consumers. It is called before the command asks for confirmation.
func needsForce(forced string, groups ...admin.GroupStats) error {
	for _, g := range groups {
		if len(g.Consumers) > 0 {
			return fmt.Errorf("%w: %q has %s; --force %s all the same", redisdelay.ErrGroupAlive, g.Group, g.Consumers[0].ID, forced)
		}
	}
	return nil
}

func (a *app) retireNow(ctx context.Context, topic, group string, force bool) error {
	freed, err := a.admin.RetireGroup(ctx, topic, group, redisdelay.RetireOptions{Force: force})
	if err != nil && freed > 0 {
		return fmt.Errorf("%w (freed %s so far; run it again to finish)", err, humanize.Count(freed, "message", "messages"))
	}
	if err != nil {
		return err
	}
	return a.reply(operationJSON{Topic: topic, Operation: "retire", Group: group, Done: freed, Complete: true},
		"retired %s, freed %s; redisdelay restore lets it start again", nameOf(topic, group), humanize.Count(freed, "message", "messages"))
}

func (a *app) restore() *cobra.Command {
	return a.command("restore TOPIC GROUP", "Let a retired group start again with its next subscriber", nil,
		func(ctx context.Context, args []string) error {
			g, err := a.group(ctx, args[0], args[1])
			if err != nil && !errors.Is(err, admin.ErrGroupNotFound) {
				return err
			}
			if err := a.admin.RestoreGroup(ctx, args[0], args[1]); err != nil {
				return err
			}
			result := "%s was not retired"
			if g.State == admin.GroupRetired || g.State == admin.GroupRetiring {
				result = "%s can start again"
			}
			return a.result("restore", args[0], args[1], result, nameOf(args[0], args[1]))
		})
}

func (a *app) delete() *cobra.Command {
	var force bool
	confirm := ""
	cmd := a.command("delete TOPIC", "Delete a topic with all its messages, dead messages and groups",
		func(_ *cobra.Command, args []string) error {
			if confirm != "" && confirm != args[0] {
				return usagef("--confirm is %q, want the name of the topic: %s", confirm, args[0])
			}
			if confirm == "" && !a.terminal.in {
				return usagef("--confirm is missing: there is no terminal to ask on, want --confirm %s", args[0])
			}
			return nil
		}, func(ctx context.Context, args []string) error {
			topic := args[0]
			stats, err := a.statsOf(ctx, args)
			if err != nil {
				return err
			}
			s := stats[0]
			if !force {
				if err := needsForce("deletes it", s.Groups...); err != nil {
					return err
				}
			}
			if confirm == "" {
				answer, err := a.ask(ctx, fmt.Sprintf("Topic %q has %s and %s. Type its name to delete it for good: ",
					topic, humanize.Count(s.Messages, "message", "messages"), humanize.Count(len(s.Groups), "group", "groups")))
				if err != nil {
					return err
				}
				if answer != topic {
					return errors.New("nothing is done: that is not its name")
				}
			}
			return a.deleteNow(ctx, s, force)
		})
	cmd.Flags().Var(text(&confirm, "TOPIC"), "confirm", "the topic's name again; otherwise, the command asks for it")
	cmd.Flags().BoolVar(&force, "force", false, "even if its consumers are alive")
	return cmd
}

func (a *app) deleteNow(ctx context.Context, s admin.TopicStats, force bool) error {
	if err := a.admin.DeleteTopic(ctx, s.Topic, admin.DeleteOptions{Force: force}); err != nil {
		return err
	}
	return a.reply(operationJSON{Topic: s.Topic, Operation: "delete", Done: s.Messages, Complete: true},
		"deleted topic %q, which had %s", s.Topic, humanize.Count(s.Messages, "message", "messages"))
}
