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

func (a *app) topics() *cobra.Command {
	return a.command("topics", "List the topics", nil, func(ctx context.Context, _ []string) error {
		topics, err := a.admin.Topics(ctx)
		if err != nil {
			return err
		}
		list, g := make([]topicJSON, len(topics)), a.newGrid("TOPIC")
		for i, name := range topics {
			list[i] = topicJSON{name}
			g.add(name)
		}
		return printList(a, list, g, noTopics, a.prefix)
	})
}

const noTopics = "there are no topics with the prefix %q"

// probe has the limits of the flags of stats.
type probe struct {
	maxOverdue time.Duration
	maxDead    int
	maxWaiting int
	given      map[string]bool
}

// failed returns why a topic exceeds the limits; "" if it does not.
func (p probe) failed(s admin.TopicStats) string {
	var why []string
	if p.given["max-overdue"] && s.Overdue > p.maxOverdue {
		why = append(why, fmt.Sprintf("a message is overdue by %s, more than %s", humanize.Duration(s.Overdue), humanize.Duration(p.maxOverdue)))
	}
	if p.given["max-dead"] && s.Dead > p.maxDead {
		why = append(why, fmt.Sprintf("%s, more than %s", humanize.Count(s.Dead, "dead message", "dead messages"), humanize.Number(p.maxDead)))
	}
	if waiting := s.Due + s.Ready + s.InLine; p.given["max-waiting"] && waiting > p.maxWaiting {
		why = append(why, fmt.Sprintf("%s due and waiting, more than %s", humanize.Number(waiting), humanize.Number(p.maxWaiting)))
	}
	if len(why) == 0 {
		return ""
	}
	for _, l := range s.LateGroups() {
		why = append(why, l.String())
	}
	return fmt.Sprintf("topic %q: %s", s.Topic, strings.Join(why, "; "))
}

const statsLong = `SCHEDULED    messages not given to groups yet; of these, DUE are due
READY        messages that are due and wait for a consumer, in each group
IN LINE      messages that are due and wait for their ordering keys, in each group
POSTPONED    messages that wait for a retry or were postponed, in each group
IN DELIVERY  messages that a consumer holds; of these, those with LEASE EXPIRED
             have an expired lease
DEAD         dead messages
OVERDUE      lateness of the oldest due message that no consumer has claimed;
             paused groups do not count
NEXT DUE     when the next scheduled message is due
BODIES       bytes of the messages' bodies, estimated from a sample
MEMORY       memory of all keys of the topic in Redis, estimated from samples`

func (a *app) stats() *cobra.Command {
	p, watch := probe{given: map[string]bool{}}, false
	check := func(cmd *cobra.Command, _ []string) error {
		for _, name := range []string{"max-overdue", "max-dead", "max-waiting"} {
			if err := exclusive(cmd, "watch", name); err != nil {
				return err
			}
			p.given[name] = cmd.Flags().Changed(name)
		}
		return nil
	}
	cmd := a.command("stats [TOPIC]", "Count messages that wait, are late, in delivery or dead; probe for monitoring", check,
		func(ctx context.Context, args []string) error {
			if watch {
				return a.watchStats(ctx, args)
			}
			return a.probeStats(ctx, args, p)
		})
	cmd.Flags().BoolVar(&watch, "watch", false, "refresh every second, until Ctrl-C")
	cmd.Flags().Var(duration(&p.maxOverdue, 0), "max-overdue", "exit 1 if a message is overdue by more than this")
	cmd.Flags().Var(number(&p.maxDead, 0, 1_000_000_000), "max-dead", "exit 1 if there are more dead messages")
	cmd.Flags().Var(number(&p.maxWaiting, 0, 1_000_000_000), "max-waiting", "exit 1 if more messages are due and wait, including those in line")
	cmd.Long = statsLong
	cmd.Example = "redisdelay stats\nredisdelay stats orders\nredisdelay stats --watch\nredisdelay stats --max-overdue 30s --max-dead 0"
	return cmd
}

// probeStats shows the statistics. It returns an error if a topic could not be read or exceeds a limit.
func (a *app) probeStats(ctx context.Context, args []string, p probe) error {
	all, failed := a.statsOf(ctx, args)
	if failed != nil && len(all) == 0 {
		return failed
	}
	if err := a.showStats(all, len(args) > 0); err != nil {
		return err
	}
	var why []string
	if failed != nil {
		why = append(why, failed.Error())
	}
	for _, s := range all {
		if failed := p.failed(s); failed != "" {
			why = append(why, failed)
		}
	}
	if len(why) > 0 {
		return errors.New(strings.Join(why, "; "))
	}
	return nil
}

// watchStats shows the statistics every second until ctx ends. It continues after errors, because Redis may be restarting.
func (a *app) watchStats(ctx context.Context, args []string) error {
	for {
		all, err := a.statsOf(ctx, args)
		if ctx.Err() != nil {
			return nil
		}
		if a.terminal.out && !a.json() {
			_ = a.printf("%s", clearScreen)
		}
		if err != nil {
			a.say("%s\n", plain(err))
		}
		if err == nil || len(all) > 0 {
			if err := a.showStats(all, len(args) > 0); err != nil {
				return err
			}
		}
		if a.wait(ctx, time.Second) != nil {
			return nil
		}
	}
}

// statsOf returns the statistics of the given topics, by default of all topics.
func (a *app) statsOf(ctx context.Context, topics []string) ([]admin.TopicStats, error) {
	return a.admin.Stats(ctx, admin.StatsOptions{Topics: topics, Details: true})
}

func (a *app) showStats(all []admin.TopicStats, one bool) error {
	if one && !a.json() {
		return a.showTopic(all[0])
	}
	list := make([]statsJSON, len(all))
	g := a.newGrid("TOPIC", "#SCHEDULED", "#DUE", "#READY", "#IN LINE", "#POSTPONED", "#IN DELIVERY", "#DEAD", "#OVERDUE", "#NEXT DUE",
		"#+MESSAGES", "#+BODIES", "#+MEMORY", "#+KEYS", "#+PARTITIONS", "PAUSED")
	for i, s := range all {
		list[i] = statsJSON{s, s.LateGroups()}
		g.add(s.Topic, count(s.Scheduled), count(s.Due), count(s.Ready), unlessZero(s.InLine), count(s.Postponed), count(s.InDelivery),
			bad(s.Dead), overdue(s.Overdue), humanize.Relative(s.NextDue, s.At),
			count(s.Messages), humanize.Bytes(s.Bytes), memory(s.Memory), count(s.Keys), count(s.Partitions), pausedText(s))
	}
	g.spare = []string{"NEXT DUE", "POSTPONED", "IN DELIVERY"}
	if err := printList(a, list, g, noTopics, a.prefix); err != nil || a.json() {
		return err
	}
	for _, s := range list {
		for _, l := range s.LateGroups {
			if err := a.printf("%s\n", paint(warnStyle, s.Topic+": "+l.String())); err != nil {
				return err
			}
		}
	}
	return nil
}

// memory formats a size; "?" if it is unknown.
func memory(bytes int64) string {
	if bytes == 0 {
		return "?"
	}
	return humanize.Bytes(bytes)
}

// overdue formats how long a message is overdue. A second or more is highlighted.
func overdue(d time.Duration) styled {
	switch {
	case d <= 0:
		return paint(dimStyle, "0")
	case d < time.Second:
		return styled(humanize.Duration(d))
	case d < 30*time.Second:
		return paint(warnStyle, humanize.Duration(d))
	default:
		return paint(badStyle, humanize.Duration(d))
	}
}

// styledPause returns pauseText in colour; "" for no pause.
func styledPause(p *redisdelay.Pause, now time.Time) styled {
	if p == nil {
		return ""
	}
	return paint(warnStyle, pauseText(p, now))
}

// pausedText names the paused groups of a topic.
func pausedText(s admin.TopicStats) styled {
	var paused []string
	for _, g := range s.Groups {
		if g.Pause != nil && g.State == admin.GroupActive {
			paused = append(paused, g.Group)
		}
	}
	if s.Pause != nil || len(paused) == 0 {
		return styledPause(s.Pause, s.At)
	}
	return paint(warnStyle, strings.Join(paused, ", "))
}

// pauseText formats the user, the times and the reason of a pause.
func pauseText(p *redisdelay.Pause, now time.Time) string {
	text := "until resumed"
	if !p.Until().IsZero() {
		text = "until " + humanize.Absolute(p.Until(), now.Local())
	}
	if !p.Since.IsZero() {
		text = "since " + humanize.Absolute(p.Since, now.Local()) + " " + text
	}
	if p.By != "" {
		text = "by " + p.By + " " + text
	}
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	if p.All {
		text = "all groups, " + text
	}
	return text
}

// showTopic prints the statistics of one topic and its groups.
func (a *app) showTopic(s admin.TopicStats) error {
	f := &fields{}
	f.add("topic", paint(headerStyle, s.Topic))
	f.add("scheduled", humanize.Count(s.Scheduled, "message", "messages"))
	if s.Due > 0 {
		f.add("due", humanize.Number(s.Due)+" of these, the oldest since "+humanize.Absolute(s.OldestDue, s.At.Local()))
	}
	f.add("overdue", overdue(s.Overdue))
	for _, l := range s.LateGroups() {
		f.add("late", paint(warnStyle, l.String()))
	}
	f.add("next due", humanize.Full(s.NextDue, s.At.Local()))
	f.add("held in all", fmt.Sprintf("%s with bodies of about %s, in %s", humanize.Count(s.Messages, "message", "messages"),
		humanize.Bytes(s.Bytes), humanize.Count(s.Partitions, "partition", "partitions")))
	if s.Memory > 0 {
		f.add("in Redis", "about "+humanize.Bytes(s.Memory)+" of memory, with ids, keys, and what groups have noted")
	}
	if s.Keys > 0 || s.Windows > 0 {
		f.add("keys", fmt.Sprintf("%s in use, %s in a deduplication window", humanize.Number(s.Keys), humanize.Number(s.Windows)))
	}
	f.add("paused", styledPause(s.Pause, s.At))
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

// fields is a list of names and values.
type fields struct{ list [][2]string }

// add adds a field unless its value is empty.
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
	cmd := a.command("groups [TOPIC]", "Show the consumer groups of a topic, or of all topics by their lag, including retired groups", nil,
		func(ctx context.Context, args []string) error {
			list, failed := a.groupsOf(ctx, args)
			if failed != nil && len(list) == 0 {
				return failed
			}
			return errors.Join(a.showGroups(list, len(args) == 0), failed)
		})
	cmd.Long = "LAG is how late the oldest due message is that the group has not claimed."
	return cmd
}

// groupOf is a group with its topic.
type groupOf struct {
	Topic string
	admin.GroupStats
	oldest time.Time // the due time of the oldest due message; zero if there is none
	lag    time.Duration
}

// groupsOf returns the groups of a topic by name, or the groups of all topics, the most overdue first.
func (a *app) groupsOf(ctx context.Context, args []string) ([]groupOf, error) {
	all, err := a.statsOf(ctx, args)
	var list []groupOf
	for _, s := range all {
		list = append(list, groupsIn(s)...)
	}
	if len(args) == 0 {
		slices.SortStableFunc(list, func(a, b groupOf) int {
			return cmp.Or(compareOldest(a.oldest, b.oldest), cmp.Compare(b.Ready, a.Ready), cmp.Compare(a.Topic, b.Topic))
		})
	}
	return list, err
}

// compareOldest sorts by time. Zero times come last.
func compareOldest(a, b time.Time) int {
	if a.IsZero() || b.IsZero() {
		return cmp.Compare(b.UnixMilli(), a.UnixMilli())
	}
	return a.Compare(b)
}

// groupsIn returns the groups of a topic. Due messages that no group has been given yet count for each active group.
func groupsIn(s admin.TopicStats) []groupOf {
	list := make([]groupOf, len(s.Groups))
	for i, g := range s.Groups {
		oldest := g.OldestReady
		if g.State == admin.GroupActive && !s.OldestDue.IsZero() && (oldest.IsZero() || s.OldestDue.Before(oldest)) {
			oldest = s.OldestDue
		}
		list[i] = groupOf{Topic: s.Topic, GroupStats: g, oldest: oldest}
		if !oldest.IsZero() {
			list[i].lag = max(0, s.At.Sub(oldest))
		}
	}
	return list
}

// showGroups prints groups. With topics, it shows their topics and lags.
func (a *app) showGroups(groups []groupOf, topics bool) error {
	g := a.newGrid("TOPIC", "GROUP", "STATE", "#LAG", "#READY", "#IN LINE", "#POSTPONED", "#IN DELIVERY", "#LEASE EXPIRED",
		"#DEAD", "#HALTED KEYS", "#CONSUMERS",
		"#OLDEST READY", "#NEXT DUE", "#+OLDEST UNACKED", "#+OLDEST DEAD", "+ENDS", "LIMITS", "PAUSED")
	for _, s := range groups {
		topic, late, oldest := "", styled(""), humanize.Relative(s.OldestReady, s.At)
		if topics {
			topic, late, oldest = s.Topic, lag(s), "" // the lag has the same information
		}
		g.add(topic, s.Group, groupState(s.GroupStats), late, count(s.Ready), unlessZero(s.InLine), count(s.Postponed), count(s.InDelivery),
			bad(s.LeaseExpired), bad(s.Dead), alarm(unlessZero(s.HaltedKeys)), consumersOf(s.GroupStats), oldest,
			humanize.Relative(s.NextDue, s.At),
			humanize.Relative(s.OldestUnacked, s.At), humanize.Relative(s.OldestDead, s.At), humanize.Relative(s.ExpiresAt, s.At),
			limitsText(s.Limits), styledPause(s.Pause, s.At))
	}
	g.spare = []string{"NEXT DUE", "LEASE EXPIRED", "OLDEST READY", "POSTPONED"}
	return printList(a, groups, g, "no group is registered")
}

// lag formats the lag of a group. That of a paused group is intended, so it has no colour.
func lag(g groupOf) styled {
	if g.Pause != nil {
		return styled(humanize.Duration(g.lag))
	}
	return overdue(g.lag)
}

func groupState(s admin.GroupStats) styled {
	switch {
	case s.State != admin.GroupActive:
		return paint(warnStyle, string(s.State))
	case s.Pause != nil:
		return paint(warnStyle, "paused")
	}
	return paint(goodStyle, string(s.State))
}

// consumersOf formats the number of live consumers. None is a problem if messages wait.
func consumersOf(s admin.GroupStats) styled {
	if len(s.Consumers) == 0 && s.State == admin.GroupActive && s.Ready+s.InDelivery > 0 {
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
	if limits.HaltsKeys {
		parts = append(parts, "dead messages halt keys")
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
	cmd := a.command("consumers [TOPIC]", "Show live consumers and how many messages they hold", nil,
		func(ctx context.Context, args []string) error {
			alive, failed := a.alive(ctx, args, group)
			if failed != nil && len(alive) == 0 {
				return failed
			}
			g := a.newGrid("TOPIC", "GROUP", "CONSUMER", "#PID", "#SINCE", "#SEEN", "#HELD", "+ID", "+HELD MESSAGES")
			now := a.now()
			for _, c := range alive {
				g.add(c.Topic, c.Group, c.Name, pid(c.PID), humanize.Relative(c.Since, now),
					humanize.Relative(c.LastSeen, now), count(len(c.Holds)), c.ID, holdsText(c.Holds))
			}
			return errors.Join(printList(a, alive, g, "no consumer is alive"), failed)
		})
	a.groupFlag(cmd, &group, "only of this group")
	cmd.Long = "HELD is the number of messages that its handlers had at its last heartbeat, one per third of a lease.\n" +
		"redisdelay ls TOPIC --in-delivery lists the messages that are held now."
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

// holdsText formats ids with the number of extensions of their leases.
func holdsText(holds map[string]int) string {
	var parts []string
	for id, times := range holds {
		parts = append(parts, fmt.Sprintf("%s (extended %d×)", id, times))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
