package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

// showTopic shows one topic in full.
func (a *app) showTopic(s admin.TopicStats) error {
	f := &fields{}
	f.add("topic", paint(headerStyle, s.Topic))
	f.add("scheduled", humanize.Count(s.Scheduled, "message", "messages"))
	if s.Due > 0 {
		f.add("due", humanize.Number(s.Due)+" of these, the oldest since "+humanize.Absolute(s.OldestDue, s.At.Local()))
	}
	f.add("overdue", overdue(s.Overdue()))
	f.add("next due", humanize.Full(s.NextDue, s.At.Local()))
	f.add("held in all", fmt.Sprintf("%s with bodies of about %s, in %s", humanize.Count(s.Messages, "message", "messages"),
		humanize.Bytes(s.Bytes), humanize.Count(s.Partitions, "partition", "partitions")))
	if s.Memory > 0 {
		f.add("in Redis", "about "+humanize.Bytes(s.Memory)+" of memory, with ids, keys, and what groups have noted")
	}
	if s.Keys > 0 || s.Windows > 0 {
		f.add("keys", fmt.Sprintf("%s in use, %s in a deduplication window", humanize.Number(s.Keys), humanize.Number(s.Windows)))
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
	return a.showGroups(groupsIn(s), false)
}

// fields is a list of names and values for people.
type fields struct{ list [][2]string }

// add adds a field that has a value.
func (f *fields) add(name string, value any) {
	if text := fmt.Sprint(clean(value)...); text != "" {
		f.list = append(f.list, [2]string{name, text})
	}
}

func (a *app) printFields(f *fields) error {
	widest := 0
	for _, field := range f.list {
		widest = max(widest, len(field[0]))
	}
	for _, field := range f.list {
		name := paint(dimStyle, fmt.Sprintf("%-*s", widest, field[0]))
		if err := a.printf("%s  %s\n", name, styled(field[1])); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) groups() *cobra.Command {
	cmd := a.command("groups [TOPIC]", "Show the consumer groups of a topic, retired ones included, or of all topics by their lag", nil,
		func(ctx context.Context, args []string) error {
			list, failed := a.groupsOf(ctx, args)
			if failed != nil && len(list) == 0 {
				return failed
			}
			if !a.json() {
				return errors.Join(a.showGroups(list, len(args) == 0), failed)
			}
			for _, g := range list {
				if err := a.object(inGroup(g.topic, g.GroupStats)); err != nil {
					return err
				}
			}
			return failed
		})
	cmd.Long = "LAG is how long the message that has waited longest since its due time has waited for the group."
	return cmd
}

// groupOf is a group of a topic.
type groupOf struct {
	topic string
	admin.GroupStats
	oldest time.Time // the due time of the message that has waited longest; zero if none waits
	lag    time.Duration
}

// groupsOf returns the groups of a topic, by name, or those of all topics, the latest first.
func (a *app) groupsOf(ctx context.Context, args []string) ([]groupOf, error) {
	all, err := a.statsOf(ctx, args)
	var list []groupOf
	for _, s := range all {
		list = append(list, groupsIn(s)...)
	}
	if len(args) == 0 {
		slices.SortStableFunc(list, func(a, b groupOf) int {
			return cmp.Or(compareOldest(a.oldest, b.oldest), cmp.Compare(b.Queued, a.Queued), cmp.Compare(a.topic, b.topic))
		})
	}
	return list, err
}

// compareOldest puts what has waited longer first, and what does not wait last.
func compareOldest(a, b time.Time) int {
	if a.IsZero() || b.IsZero() {
		return cmp.Compare(b.UnixMilli(), a.UnixMilli())
	}
	return a.Compare(b)
}

// groupsIn returns the groups of a topic. What is due and not given to the groups waits for all
// that get messages.
func groupsIn(s admin.TopicStats) []groupOf {
	list := make([]groupOf, len(s.Groups))
	for i, g := range s.Groups {
		oldest := g.OldestQueued
		if g.State == admin.GroupActive && !s.OldestDue.IsZero() && (oldest.IsZero() || s.OldestDue.Before(oldest)) {
			oldest = s.OldestDue
		}
		list[i] = groupOf{topic: s.Topic, GroupStats: g, oldest: oldest}
		if !oldest.IsZero() {
			list[i].lag = max(0, s.At.Sub(oldest))
		}
	}
	return list
}

// showGroups shows groups, with their topics if they are of several.
func (a *app) showGroups(groups []groupOf, topics bool) error {
	if len(groups) == 0 {
		return a.printf("no group is registered\n")
	}
	g := a.newGrid("TOPIC", "GROUP", "STATE", "#LAG", "#QUEUED", "#RETRYING", "#IN DELIVERY", "#EXPIRED", "#DEAD", "#CONSUMERS",
		"#OLDEST QUEUED", "#NEXT RETRY", "#+OLDEST UNACKED", "#+OLDEST DEAD", "+ENDS", "LIMITS", "PAUSED")
	for _, s := range groups {
		topic := ""
		if topics {
			topic = s.topic
		}
		g.add(topic, s.Group, groupState(s.GroupStats), lag(s), count(s.Queued), count(s.Retrying), count(s.InDelivery), bad(s.Expired),
			bad(s.Dead), consumersOf(s.GroupStats), humanize.Relative(s.OldestQueued, s.At), humanize.Relative(s.NextRetry, s.At),
			humanize.Relative(s.OldestUnacked, s.At), humanize.Relative(s.OldestDead, s.At), humanize.Relative(s.ExpiresAt, s.At),
			limitsText(s.Limits), pauseText(s.Pause, s.At))
	}
	g.spare = []string{"NEXT RETRY", "EXPIRED", "OLDEST QUEUED", "RETRYING"}
	if topics {
		g.drop(func(i int) bool { return g.columns[i].name == "OLDEST QUEUED" }) // LAG says as much
	} else {
		g.drop(func(i int) bool { return g.columns[i].name == "LAG" })
	}
	return a.print(g.without("TOPIC", "LIMITS", "PAUSED"))
}

// lag is a lateness; that of a group that is paused is meant.
func lag(g groupOf) styled {
	if g.Pause != nil {
		return styled(humanize.Duration(g.lag))
	}
	return overdue(g.lag)
}

func groupState(s admin.GroupStats) styled {
	if state := stateOf(s); state != string(admin.GroupActive) {
		return paint(warnStyle, state)
	}
	return paint(goodStyle, string(s.State))
}

// consumersOf writes how many consumers are alive; none is bad if messages wait.
func consumersOf(s admin.GroupStats) styled {
	if len(s.Consumers) == 0 && s.State == admin.GroupActive && s.Queued+s.InDelivery > 0 {
		return paint(badStyle, "none")
	}
	return count(len(s.Consumers))
}

func limitsText(limits *redisdelay.GroupLimits) string {
	if limits == nil {
		return ""
	}
	var parts []string
	if n := limits.MaxInFlight; n > 0 {
		parts = append(parts, humanize.Number(n)+" in flight")
	}
	if r := limits.Rate; r.Messages > 0 {
		parts = append(parts, rateText(r.Messages, r.Per))
		if r.Burst > 0 && r.Burst != r.Messages {
			parts = append(parts, "burst "+humanize.Number(r.Burst))
		}
	}
	return strings.Join(parts, ", ")
}

func rateText(messages int, per time.Duration) string {
	unit := humanize.Duration(per)
	if strings.HasPrefix(unit, "1") && len(unit) == 2 {
		unit = unit[1:]
	}
	return humanize.Number(messages) + "/" + unit
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
				g.add(c.Topic, c.Group, c.Name, pid(c.PID), humanize.Relative(c.Since, now),
					humanize.Relative(c.Seen, now), count(len(c.Holds)), c.ID, holdsText(c.Holds))
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
		parts = append(parts, fmt.Sprintf("%s (extended %d×)", id, times))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
