package admin

import (
	"fmt"
	"time"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
)

// lateAfter is how long due messages may wait without a cause: an idle subscription is never later than this by default
// (redisdelay.SubscriberConfig.PollInterval).
const lateAfter = 5 * time.Second

// Cause is why the due messages of a group wait.
type Cause string

// The values of Cause.
const (
	CauseNoGroup    Cause = "no-group"    // the topic has no group
	CausePaused     Cause = "paused"      // the group is paused
	CauseNoConsumer Cause = "no-consumer" // no consumer of the group is alive
	CauseHalted     Cause = "halted"      // dead messages halt the ordering keys
	CauseLimit      Cause = "limit"       // a limit of the group is reached
	CauseSlow       Cause = "slow"        // the consumers are idle, or cannot keep up
)

// LateGroup says why due messages wait for a group.
type LateGroup struct {
	Group     string        // "" if the topic has none
	Unclaimed int           // due messages that no consumer has claimed
	Overdue   time.Duration // how long ago the oldest of them became due
	Cause     Cause
	Text      string // how many wait, for how long, and why
}

// String returns Text with the name of the group.
func (l LateGroup) String() string {
	if l.Group == "" {
		return l.Text
	}
	return "group " + l.Group + ": " + l.Text
}

// LateGroups returns the groups whose due messages wait although no consumer is about to claim them, and why.
func (s TopicStats) LateGroups() []LateGroup {
	var list []LateGroup
	active := 0
	for _, g := range s.Groups {
		if g.State != GroupActive {
			continue
		}
		active++
		if l, is := s.late(g); is {
			list = append(list, l)
		}
	}
	if active == 0 && s.Due > 0 {
		list = append(list, lateBecause(LateGroup{
			Unclaimed: s.Due, Overdue: since(s.OldestDue, s.At), Cause: CauseNoGroup,
		}, "no group is registered"))
	}
	return list
}

// late says why a group is late; false if it is not.
func (s TopicStats) late(g GroupStats) (LateGroup, bool) {
	l := LateGroup{Group: g.Group, Unclaimed: s.Due + g.Ready + g.InLine, Overdue: since(inspect.Earliest(s.OldestDue, g.OldestReady), s.At)}
	why := ""
	switch {
	case l.Unclaimed == 0:
		return l, false
	case g.Pause != nil:
		l.Cause, why = CausePaused, pausedText(g.Group, g.Pause, s.At)
	case g.LiveConsumers == 0:
		l.Cause, why = CauseNoConsumer, noConsumer(g.Group)
	case l.Unclaimed == g.InLine && g.HaltedKeys > 0:
		l.Cause, why = CauseHalted, humanize.Count(g.HaltedKeys, "ordering key is halted by a dead message", "ordering keys are halted by dead messages")
	case l.Overdue <= lateAfter:
		return l, false
	case g.AtLimit:
		l.Cause, why = CauseLimit, "a limit of group "+g.Group+" is reached"
	default:
		l.Cause, why = CauseSlow, "its "+g.slow()
	}
	return lateBecause(l, why), true
}

// slow says what is known of consumers that let messages wait.
func (g GroupStats) slow() string {
	if g.InDelivery == 0 {
		return humanize.Count(g.LiveConsumers, "consumer is idle", "consumers are idle")
	}
	return humanize.Count(g.LiveConsumers, "consumer cannot keep up", "consumers cannot keep up")
}

func lateBecause(l LateGroup, why string) LateGroup {
	l.Text = humanize.Count(l.Unclaimed, "message is due and waits", "messages are due and wait")
	if l.Overdue > 0 {
		l.Text += ", the oldest for " + humanize.Duration(l.Overdue)
	}
	l.Text += "; " + why
	return l
}

// noConsumer says that a group has no live consumer.
func noConsumer(group string) string { return "no consumer of group " + group + " is alive" }

// pausedText says who has paused a group, since when, until when and why.
func pausedText(group string, p *redisdelay.Pause, now time.Time) string {
	text := "group " + group + " is paused"
	if p.All {
		text = "all groups are paused"
	}
	if p.By != "" {
		text += " by " + p.By
	}
	if !p.Since.IsZero() {
		text += " since " + clock(p.Since, now)
	}
	if p.Until().IsZero() {
		text += " until resumed"
	} else {
		text += " until " + clock(p.Until(), now)
	}
	if p.Reason != "" {
		text += fmt.Sprintf(": %q", p.Reason)
	}
	return text
}
