package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// Explanation says in words why a message is where it is, and when it will move.
type Explanation struct {
	Message Message
	Summary string   // one sentence, such as "due in 29m"
	Lines   []string // one for each group, sorted by group
}

// Explain explains where a message is and what it waits for: its due time, a retry, a
// pause, a limit, a consumer. Times of day are in the local time zone. A retry is told with how
// many there may be, if a consumer is alive that says so. The errors are those of Message.
func (a *Admin) Explain(ctx context.Context, topic string, ref Ref) (Explanation, error) {
	t, message, err := a.look(ctx, topic, ref)
	if err != nil {
		return Explanation{}, wrap(err, "explain %s in %q", ref, topic)
	}
	e := explainer{topic: t, partition: t.Partition(message.Partition), message: message}
	e.roster, err = inspect.ReadRoster(ctx, e.partition)
	if err == nil {
		err = e.explain(ctx)
	}
	if err != nil {
		return Explanation{}, wrap(err, "explain %s in %q", ref, topic)
	}
	return Explanation{Message: message, Summary: e.summary(), Lines: e.lines()}, nil
}

// explainer puts into words where one message stands.
type explainer struct {
	topic     topic
	partition *queue.Partition
	roster    inspect.Roster // of the message's partition, where claims obey it
	message   Message
	groups    []sentence // one for each group
}

// sentence is what there is to say about a group.
type sentence struct {
	group string
	state redisdelay.State // "" if no group has been given the message
	text  string
}

func (e *explainer) explain(ctx context.Context) error {
	if e.message.Scheduled {
		return e.explainScheduled(ctx)
	}
	e.groups = make([]sentence, len(e.message.Groups))
	return each(len(e.groups), func(i int) error {
		text, err := e.status(ctx, i)
		e.groups[i] = sentence{e.message.Groups[i].Group, e.message.Groups[i].State, text}
		return err
	})
}

// explainScheduled says what keeps each group from a message that is due.
func (e *explainer) explainScheduled(ctx context.Context) error {
	e.groups = make([]sentence, len(e.roster.Groups))
	return each(len(e.groups), func(i int) error {
		name := e.roster.Groups[i]
		text := e.due(e.message.DueAt)
		if !e.message.DueAt.After(e.message.At) {
			turn, err := e.turn(ctx, name, e.message.DueAt, "")
			if err != nil {
				return err
			}
			text = join(text, turn, "")
		}
		e.groups[i] = sentence{group: name, text: text}
		return nil
	})
}

// status says where the message stands for a group.
func (e *explainer) status(ctx context.Context, i int) (string, error) {
	g := e.message.Groups[i]
	switch g.State {
	case redisdelay.StateDone:
		return "acked or discarded, or the group came later", nil
	case redisdelay.StateDead:
		text := fmt.Sprintf("dead since %s, because: %s", e.clock(g.BuriedAt), g.Reason)
		if last := g.Content.LastError; !strings.Contains(g.Reason, last) {
			text += "; the last error was: " + last
		}
		return text, nil
	case redisdelay.StateInDelivery:
		return e.leased(ctx, g)
	}
	waiting, err := e.waiting(ctx, g)
	if err != nil || g.DueAt.After(e.message.At) {
		return waiting, err
	}
	fate, err := e.fate(ctx, g.Group)
	if err != nil {
		return waiting, err
	}
	turn, err := e.turn(ctx, g.Group, g.DueAt, fate)
	return join(waiting, turn, ""), err
}

// waiting says what a message in the queue of a group waits for.
func (e *explainer) waiting(ctx context.Context, g GroupStatus) (string, error) {
	if g.State != redisdelay.StateRetrying {
		return e.due(g.DueAt), nil
	}
	maximum, err := e.maxDeliveries(ctx, g.Group)
	text := fmt.Sprintf("waiting for retry %d", g.Attempts)
	if maximum > 1 {
		text += fmt.Sprintf(" of %d", maximum-1)
	}
	text += ", " + e.due(g.DueAt)
	if g.Content.LastError != "" {
		text += ", after: " + g.Content.LastError
	}
	return text, err
}

// maxDeliveries is what the group's consumers say; 0 if none does.
func (e *explainer) maxDeliveries(ctx context.Context, group string) (int, error) {
	consumers, err := inspect.Consumers(ctx, e.partition.Group(group))
	maximum := 0
	for _, c := range consumers {
		maximum = max(maximum, c.About.MaxDeliveries)
	}
	return maximum, err
}

// leased says who holds a message.
func (e *explainer) leased(ctx context.Context, g GroupStatus) (string, error) {
	who := g.Consumer
	if who == "" {
		who = "a consumer"
	}
	if g.LeasedUntil.After(e.message.At) {
		text := fmt.Sprintf("leased by %s until %s", who, e.clock(g.LeasedUntil))
		if g.Extended > 0 {
			text += ", extended " + humanize.Times(g.Extended)
		}
		return text, nil
	}
	text := fmt.Sprintf("the lease of %s ran out %s ago", who, humanize.Duration(e.message.At.Sub(g.LeasedUntil)))
	why, err := e.obstacle(ctx, g.Group)
	if err != nil || why != "" {
		return join(text, why, ""), err
	}
	fate, err := e.fate(ctx, g.Group)
	if fate == "" {
		fate = "takes it over"
	}
	return join(text, "", "the next claim "+fate), err
}

// due says when a message is due.
func (e *explainer) due(at time.Time) string {
	if away := at.Sub(e.message.At); away > 0 {
		return "due in " + humanize.Duration(away)
	}
	return "due for " + humanize.Duration(e.message.At.Sub(at))
}

// summary is one sentence for the whole.
func (e *explainer) summary() string {
	if e.message.Content.Body == nil {
		return "its body is missing: " + e.overall()
	}
	return e.overall()
}

// overall is the summary of a message that is whole.
func (e *explainer) overall() string {
	switch {
	case e.message.Scheduled && e.message.DueAt.After(e.message.At) && len(e.groups) > 0:
		return e.due(e.message.DueAt)
	case e.message.Scheduled && len(e.groups) == 0:
		return join(e.due(e.message.DueAt), "no group is registered", "")
	case !slices.ContainsFunc(e.groups, func(s sentence) bool { return s.state != redisdelay.StateDone }):
		return "no group needs it, and its body is left"
	case !slices.ContainsFunc(e.groups, func(s sentence) bool { return s.text != e.groups[0].text }):
		return e.groups[0].text
	}
	var done, remaining []string
	var why string
	for _, s := range e.groups {
		if s.state == redisdelay.StateDone {
			done = append(done, s.group)
		} else {
			remaining, why = append(remaining, s.group), s.text
		}
	}
	if len(done) == 0 {
		return strings.Join(e.lines(), "; ")
	}
	text := fmt.Sprintf("done for %s, not for %s", strings.Join(done, ", "), strings.Join(remaining, ", "))
	if len(remaining) == 1 {
		text += ": " + why
	}
	return text
}

func (e *explainer) lines() []string {
	lines := make([]string, len(e.groups))
	for i, s := range e.groups {
		lines[i] = s.group + ": " + s.text
	}
	return lines
}

// clock is a time of day, with its date if that is not the message's day.
func (e *explainer) clock(t time.Time) string {
	t, now := t.Local(), e.message.At.Local()
	text := t.Format("15:04:05")
	text = strings.TrimSuffix(text, ":00")
	if t.Format(time.DateOnly) != now.Format(time.DateOnly) {
		text = t.Format(time.DateOnly) + " " + text
	}
	return text
}

// join says what is the case, and why: the reason, or else another.
func join(what, why, otherwise string) string {
	if why == "" {
		why = otherwise
	}
	if why == "" {
		return what
	}
	return what + "; " + why
}
