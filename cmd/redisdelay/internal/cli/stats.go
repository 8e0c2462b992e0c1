package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

func (a *app) topics() *cobra.Command {
	return a.command("topics", "List the topics", nil, func(ctx context.Context, _ []string) error {
		topics, err := a.admin.Topics(ctx)
		if err != nil {
			return err
		}
		g := a.newGrid("TOPIC", "#PROTOCOL")
		for _, t := range topics {
			if a.json() {
				if err := a.object(topicJSON{t.Name, t.Version}); err != nil {
					return err
				}
			}
			g.add(t.Name, t.Version)
		}
		if a.json() {
			return nil
		}
		return a.printOr(g, "there are no topics with the prefix %q", a.prefix)
	})
}

// printOr prints a table or, if it is empty, a sentence.
func (a *app) printOr(g *grid, none string, args ...any) error {
	if len(g.rows) == 0 {
		return a.printf(none+"\n", args...)
	}
	return a.print(g)
}

// probe is what stats compares with.
type probe struct {
	maxOverdue time.Duration
	maxDead    int
	maxWaiting int
	given      map[string]bool
}

// failed says why a topic fails the probe; "" if it does not.
func (p probe) failed(s admin.TopicStats) string {
	var why []string
	if p.given["max-overdue"] && s.Overdue() > p.maxOverdue {
		why = append(why, fmt.Sprintf("a message is overdue by %s, more than %s", humanize.Duration(s.Overdue()), humanize.Duration(p.maxOverdue)))
	}
	if p.given["max-dead"] && s.Dead() > p.maxDead {
		why = append(why, fmt.Sprintf("%s, more than %s", humanize.Count(s.Dead(), "dead letter", "dead letters"), humanize.Number(p.maxDead)))
	}
	if waiting := s.Due + inStats(s).Queued; p.given["max-waiting"] && waiting > p.maxWaiting {
		why = append(why, fmt.Sprintf("%s due and waiting, more than %s", humanize.Number(waiting), humanize.Number(p.maxWaiting)))
	}
	if len(why) == 0 {
		return ""
	}
	return fmt.Sprintf("topic %q: %s", s.Topic, strings.Join(why, "; "))
}

const statsLong = `SCHEDULED    messages that no group has been given yet; of these, DUE are due
QUEUED       messages that are due and wait for a consumer, in each group
RETRYING     messages that wait for a retry, or were put off, in each group
IN DELIVERY  messages that a consumer holds; EXPIRED ones have outlived their lease
DEAD         dead letters
OVERDUE      how long the message has waited since its due time that has waited longest;
             groups that are paused do not count
NEXT DUE     when the next scheduled message is due
BODIES       bytes of the messages' bodies alone, estimated from a sample
MEMORY       what all keys of the topic take in Redis, estimated from samples`

func (a *app) stats() *cobra.Command {
	p := probe{given: map[string]bool{}}
	check := func(cmd *cobra.Command, _ []string) error {
		for _, name := range []string{"max-overdue", "max-dead", "max-waiting"} {
			p.given[name] = cmd.Flags().Changed(name)
		}
		return nil
	}
	cmd := a.command("stats [TOPIC]", "Count what waits, is late, in delivery and dead; probe for monitoring", check,
		func(ctx context.Context, args []string) error {
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
		})
	cmd.Flags().Var(duration(&p.maxOverdue, 0), "max-overdue", "exit 1 if a message is overdue by more than this")
	cmd.Flags().Var(number(&p.maxDead, 0, 1_000_000_000), "max-dead", "exit 1 if there are more dead letters")
	cmd.Flags().Var(number(&p.maxWaiting, 0, 1_000_000_000), "max-waiting", "exit 1 if more messages are due and wait")
	cmd.Long = statsLong
	cmd.Example = "redisdelay stats\nredisdelay stats orders\nredisdelay stats --max-overdue 30s --max-dead 0"
	return cmd
}

// statsOf returns the statistics of a topic, or of all. Of all, the error says which topics could
// not be read, and the list has the others.
func (a *app) statsOf(ctx context.Context, args []string) ([]admin.TopicStats, error) {
	if len(args) > 0 {
		s, err := a.admin.Stats(ctx, args[0])
		if err != nil {
			return nil, err
		}
		return []admin.TopicStats{s}, nil
	}
	all, err := a.admin.AllStats(ctx)
	if err != nil {
		return nil, err
	}
	readable, err := readableOf(all)
	return readable, err
}

// mostUnreadable is how many topics that cannot be read an error names.
const mostUnreadable = 5

// readableOf leaves out the topics that could not be read, and says which they are.
func readableOf(all []admin.TopicStats) ([]admin.TopicStats, error) {
	var readable []admin.TopicStats
	var why []string
	failed := 0
	for _, s := range all {
		if s.Err == nil {
			readable = append(readable, s)
			continue
		}
		if failed++; failed <= mostUnreadable {
			why = append(why, plain(s.Err))
		}
	}
	switch {
	case failed == 0:
		return readable, nil
	case failed > mostUnreadable:
		why = append(why, "…")
	}
	return readable, fmt.Errorf("%d of %s could not be read: %s", failed, humanize.Count(len(all), "topic", "topics"), strings.Join(why, "; "))
}

func (a *app) showStats(all []admin.TopicStats, one bool) error {
	if a.json() {
		for _, s := range all {
			if err := a.object(inStats(s)); err != nil {
				return err
			}
		}
		return nil
	}
	if one {
		return a.showTopic(all[0])
	}
	g := a.newGrid("TOPIC", "#SCHEDULED", "#DUE", "#QUEUED", "#RETRYING", "#IN DELIVERY", "#DEAD", "#OVERDUE", "#NEXT DUE",
		"#+MESSAGES", "#+BODIES", "#+MEMORY", "#+KEYS", "#+PARTITIONS", "PAUSED")
	for _, s := range all {
		o := inStats(s)
		g.add(s.Topic, count(s.Scheduled), count(s.Due), count(o.Queued), count(o.Retrying), count(o.InDelivery),
			bad(s.Dead()), overdue(s.Overdue()), humanize.Relative(s.NextDue, s.At),
			count(s.Messages), humanize.Bytes(s.Bytes), memory(s.Memory), count(s.Keys), count(s.Partitions), pausedText(s))
	}
	g.spare = []string{"NEXT DUE", "RETRYING", "IN DELIVERY"}
	return a.printOr(g.without("PAUSED"), "there are no topics with the prefix %q", a.prefix)
}

// memory writes a size that may not be known.
func memory(bytes int64) string {
	if bytes == 0 {
		return "?"
	}
	return humanize.Bytes(bytes)
}

// overdue writes a lateness; a second is none to worry about.
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

// pauseText is pauseWords in colour; "" for no pause.
func pauseText(p *admin.Pause, now time.Time) styled {
	if p == nil {
		return ""
	}
	return paint(warnStyle, pauseWords(p, now))
}

// pausedText names what is paused in a topic.
func pausedText(s admin.TopicStats) styled {
	var paused []string
	for _, g := range s.Groups {
		if g.Pause != nil && g.State == admin.GroupActive {
			paused = append(paused, g.Group)
		}
	}
	if s.Pause != nil || len(paused) == 0 {
		return pauseText(s.Pause, s.At)
	}
	return paint(warnStyle, strings.Join(paused, ", "))
}

// pauseWords says who has paused, since when, until when and why.
func pauseWords(p *admin.Pause, now time.Time) string {
	text := "until somebody resumes"
	if !p.Until.IsZero() {
		text = "until " + humanize.Absolute(p.Until, now.Local())
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
