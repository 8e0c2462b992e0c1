package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/cmd/redisdelay/internal/words"
)

// showTopic shows one topic in full.
func (a *app) showTopic(s admin.TopicStats) error {
	f := &fields{}
	f.add("topic", headerStyle.Render(words.Clean(s.Topic)))
	f.add("scheduled", words.Of(s.Scheduled, "message", "messages"))
	if s.Due > 0 {
		f.add("due", words.Number(s.Due)+" of these, the oldest since "+words.Absolute(s.OldestDue, s.At.Local()))
	}
	f.add("overdue", overdue(s.Overdue()))
	f.add("next due", words.Full(s.NextDue, s.At.Local()))
	f.add("held in all", fmt.Sprintf("%s with bodies of about %s, in %s", words.Of(s.Messages, "message", "messages"),
		words.Bytes(s.Bytes), words.Of(s.Partitions, "partition", "partitions")))
	if s.Memory > 0 {
		f.add("in Redis", "about "+words.Bytes(s.Memory)+" of memory, with ids, keys, and what groups have noted")
	}
	if s.Keys > 0 || s.Windows > 0 {
		f.add("keys", fmt.Sprintf("%s in use, %s in a deduplication window", words.Number(s.Keys), words.Number(s.Windows)))
	}
	if s.Moving > 0 {
		f.add("moving", warnStyle.Render(words.Of(s.Moving, "message", "messages")+
			" between topics: redisdelay move "+words.Clean(s.Topic)+" --resume finishes what was interrupted"))
	}
	f.add("paused", pauseText(s.Pause, s.At))
	if err := a.printFields(f); err != nil {
		return err
	}
	if len(s.Groups) == 0 {
		return a.printf("\nno group is registered: its messages wait\n")
	}
	if err := a.printf("\n"); err != nil {
		return err
	}
	return a.showGroups(s.Groups)
}

// fields is a list of names and values for people.
type fields struct{ list [][2]string }

// add adds a field that has a value.
func (f *fields) add(name, value string) {
	if value != "" {
		f.list = append(f.list, [2]string{name, value})
	}
}

func (a *app) printFields(f *fields) error {
	widest := 0
	for _, field := range f.list {
		widest = max(widest, len(field[0]))
	}
	for _, field := range f.list {
		name := dimStyle.Render(fmt.Sprintf("%-*s", widest, field[0]))
		if err := a.printf("%s  %s\n", name, field[1]); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) groups() *cobra.Command {
	return a.command("groups TOPIC", "Show the consumer groups of a topic, retired ones included", nil,
		func(ctx context.Context, args []string) error {
			groups, err := a.admin.Groups(ctx, args[0])
			if err != nil {
				return err
			}
			if !a.json() {
				if len(groups) == 0 {
					return a.printf("no group is registered\n")
				}
				return a.showGroups(groups)
			}
			for _, g := range groups {
				if err := a.object(inGroup(args[0], g)); err != nil {
					return err
				}
			}
			return nil
		})
}

func (a *app) showGroups(groups []admin.GroupStats) error {
	g := a.newGrid("GROUP", "STATE", "#QUEUED", "#RETRYING", "#IN DELIVERY", "#EXPIRED", "#DEAD", "#CONSUMERS",
		"#OLDEST QUEUED", "#NEXT RETRY", "#+OLDEST UNACKED", "#+OLDEST DEAD", "+ENDS", "LIMITS", "PAUSED")
	for _, s := range groups {
		g.add(words.Clean(s.Group), groupState(s), count(s.Queued), count(s.Retrying), count(s.InDelivery), bad(s.Expired),
			bad(s.Dead), consumersOf(s), words.Relative(s.OldestQueued, s.At), words.Relative(s.NextRetry, s.At),
			words.Relative(s.OldestUnacked, s.At), words.Relative(s.OldestDead, s.At), words.Relative(s.ExpiresAt, s.At),
			limitsText(s.Limits), pauseText(s.Pause, s.At))
	}
	g.spare = []string{"NEXT RETRY", "EXPIRED", "RETRYING", "OLDEST QUEUED"}
	return a.print(g.without("LIMITS", "PAUSED"))
}

func groupState(s admin.GroupStats) string {
	switch {
	case s.State != admin.GroupActive:
		return warnStyle.Render(string(s.State))
	case s.Pause != nil:
		return warnStyle.Render("paused")
	default:
		return goodStyle.Render(string(s.State))
	}
}

// consumersOf writes how many consumers are alive; none is bad if messages wait.
func consumersOf(s admin.GroupStats) string {
	if len(s.Consumers) == 0 && s.State == admin.GroupActive && s.Queued+s.InDelivery > 0 {
		return badStyle.Render("none")
	}
	return count(len(s.Consumers))
}

func limitsText(limits *redisdelay.GroupLimits) string {
	if limits == nil {
		return ""
	}
	var parts []string
	if n := limits.MaxInFlight; n > 0 {
		parts = append(parts, words.Number(n)+" in flight")
	}
	if r := limits.Rate; r.Messages > 0 {
		parts = append(parts, rateText(r.Messages, r.Per))
		if r.Burst > 0 && r.Burst != r.Messages {
			parts = append(parts, "burst "+words.Number(r.Burst))
		}
	}
	return strings.Join(parts, ", ")
}

func rateText(messages int, per time.Duration) string {
	unit := words.Duration(per)
	if strings.HasPrefix(unit, "1") && len(unit) == 2 {
		unit = unit[1:]
	}
	return words.Number(messages) + "/" + unit
}

func (a *app) consumers() *cobra.Command {
	group := ""
	cmd := a.command("consumers [TOPIC]", "Show which consumers are alive, and what they hold", nil,
		func(ctx context.Context, args []string) error {
			alive, failed := a.alive(ctx, args, group)
			if failed != nil && len(alive) == 0 {
				return failed
			}
			g := a.newGrid("TOPIC", "GROUP", "CONSUMER", "#PID", "#SINCE", "#SEEN", "#HELD", "+ID", "+HELD MESSAGES")
			now := a.now()
			for _, c := range alive {
				if a.json() {
					if err := a.object(inConsumer(c)); err != nil {
						return err
					}
				}
				g.add(words.Clean(c.Topic), words.Clean(c.Group), words.Clean(c.Name), pid(c.PID), words.Relative(c.Since, now),
					words.Relative(c.Seen, now), count(len(c.Holds)), words.Clean(c.ID), holdsText(c.Holds))
			}
			if a.json() {
				return failed
			}
			return errors.Join(a.printOr(g, "no consumer is alive"), failed)
		})
	a.groupFlag(cmd, &group, "only of this group")
	cmd.Long = "HELD is how many messages its handlers had at its last heartbeat, which comes every third of a lease.\n" +
		"redisdelay ls TOPIC --in-delivery lists what is held now."
	return cmd
}

func (a *app) alive(ctx context.Context, args []string, group string) ([]admin.Consumer, error) {
	all, err := a.statsOf(ctx, args)
	if err != nil && len(all) == 0 {
		return nil, err
	}
	var alive []admin.Consumer
	found := group == ""
	for _, s := range all {
		for _, g := range s.Groups {
			if group == "" || g.Group == group {
				alive = append(alive, g.Consumers...)
				found = true
			}
		}
	}
	if !found {
		return nil, errors.Join(fmt.Errorf("%w: %q", admin.ErrGroupNotFound, group), err)
	}
	return alive, err
}

func pid(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// holdsText writes ids with how often their leases were extended.
func holdsText(holds map[string]int) string {
	var parts []string
	for id, times := range holds {
		parts = append(parts, fmt.Sprintf("%s (extended %d×)", words.Clean(id), times))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
