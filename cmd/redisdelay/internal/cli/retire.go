package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

func (a *app) retire() *cobra.Command {
	var force, yes, dryRun bool
	cmd := a.command("retire TOPIC GROUP", "Take a group off a topic, and free all that it holds",
		func(*cobra.Command, []string) error {
			if !yes && !dryRun && !a.terminal.in {
				return errNotAsked
			}
			return nil
		}, func(ctx context.Context, args []string) error {
			g, err := a.group(ctx, args[0], args[1])
			if err == nil && !force {
				err = alive("retires it", g)
			}
			if err != nil {
				return err
			}
			held := g.Queued + g.Retrying + g.InDelivery + g.Dead
			if dryRun {
				if a.json() {
					return a.object(actJSON{Topic: args[0], Act: "retire", Group: args[1], Matching: &held, DryRun: true})
				}
				return a.printf("%s holds %s\nnothing is done: this is a dry run\n",
					nameOf(args[0], args[1]), humanize.Count(held, "message", "messages"))
			}
			if !yes {
				question := fmt.Sprintf("Retire %s? It gives up %s.", nameOf(args[0], args[1]), humanize.Count(held, "message", "messages"))
				if yes, err := a.confirm(ctx, question); err != nil || !yes {
					return err
				}
			}
			return a.retireNow(ctx, args[0], args[1], force)
		})
	cmd.Flags().BoolVar(&force, "force", false, "even if its consumers are alive")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only count what it would free")
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

// alive refuses, before anything is asked, what needs --force.
func alive(forced string, groups ...admin.GroupStats) error {
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
	if a.json() {
		return a.object(actJSON{Topic: topic, Act: "retire", Group: group, Done: freed, Complete: true})
	}
	return a.printf("retired %s, freed %s; redisdelay restore lets it come back\n",
		nameOf(topic, group), humanize.Count(freed, "message", "messages"))
}

func (a *app) restore() *cobra.Command {
	return a.command("restore TOPIC GROUP", "Let a retired group come back with its next subscriber", nil,
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
				result = "%s may come back"
			}
			return a.result("restore", args[0], args[1], result, nameOf(args[0], args[1]))
		})
}

func (a *app) delete() *cobra.Command {
	var force bool
	confirm := ""
	cmd := a.command("delete TOPIC", "Delete a topic with all its messages, dead letters and groups",
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
			s, err := a.admin.Stats(ctx, topic)
			if err == nil && !force {
				err = alive("deletes it", s.Groups...)
			}
			if err != nil {
				return err
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
	cmd.Flags().Var(text(&confirm, "TOPIC"), "confirm", "the topic's name again; without it, it is asked for")
	cmd.Flags().BoolVar(&force, "force", false, "even if its consumers are alive")
	return cmd
}

func (a *app) deleteNow(ctx context.Context, s admin.TopicStats, force bool) error {
	if err := a.admin.DeleteTopic(ctx, s.Topic, admin.DeleteOptions{Force: force}); err != nil {
		return err
	}
	if a.json() {
		return a.object(actJSON{Topic: s.Topic, Act: "delete", Done: s.Messages, Complete: true})
	}
	return a.printf("deleted topic %q, which had %s\n", s.Topic, humanize.Count(s.Messages, "message", "messages"))
}
