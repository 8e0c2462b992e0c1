package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// Explanation says where a message is and why, and when it will move.
type Explanation struct {
	Message Message
	Tick    string   // of package periodic, such as "tick of report-eu for Monday 2026-11-30 07:00 Europe/Berlin"; "": none
	Summary string   // one sentence, such as "due in 29m"; it begins with Tick
	Lines   []string // one for each group, sorted by group
	Behind  []string // the ids of other messages of its ordering key that it waits behind
}

// Explain explains where a message is and what it waits for: its due time, a retry, another message of its ordering
// key, a pause, a limit, a consumer. The texts have times of the local time zone. The errors are those of Message.
func (a *Admin) Explain(ctx context.Context, topic string, ref Ref) (Explanation, error) {
	t, message, err := a.look(ctx, topic, ref)
	if err != nil {
		return Explanation{}, wrap(err, "explain %s in %q", ref, topic)
	}
	e := explainer{admin: a, topic: t, partition: t.Partition(message.Partition), message: message}
	e.groupList, err = inspect.ReadGroupList(ctx, e.partition)
	if err == nil {
		err = e.explain(ctx)
	}
	if err != nil {
		return Explanation{}, wrap(err, "explain %s in %q", ref, topic)
	}
	tick, summary := tickOf(message), e.summary()
	if tick != "" {
		summary = tick + ": " + summary
	}
	return Explanation{Message: message, Tick: tick, Summary: summary, Lines: e.lines(), Behind: slices.Compact(slices.Sorted(slices.Values(e.ahead)))}, nil
}

// explainer puts into words where one message stands.
type explainer struct {
	admin     *Admin
	topic     topic
	partition *queue.Partition
	groupList inspect.GroupList // of the message's partition, where claims obey it
	message   Message
	groups    []sentence // one for each group

	mu    sync.Mutex
	ahead []string // guarded by mu; Explanation.Behind
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
	e.groups = make([]sentence, len(e.groupList.Groups))
	return each(len(e.groups), func(i int) error {
		name := e.groupList.Groups[i]
		text, err := e.due(e.message.DueAt), error(nil)
		if !e.message.DueAt.After(e.message.At) {
			text, err = e.unsettled(ctx, GroupStatus{Group: name, DueAt: e.message.DueAt})
		}
		e.groups[i] = sentence{group: name, text: text}
		return err
	})
}

// observedGroup is where the message stands for a group, and the group's consumers at one moment.
type observedGroup struct {
	GroupStatus
	consumers []inspect.Consumer
}

func (e *explainer) observed(ctx context.Context, g GroupStatus) (observedGroup, error) {
	consumers, err := inspect.Consumers(ctx, e.partition.Group(g.Group))
	return observedGroup{g, consumers}, err
}

// status says where the message stands for a group.
func (e *explainer) status(ctx context.Context, i int) (string, error) {
	status := e.message.Groups[i]
	switch status.State {
	case redisdelay.StateDone:
		return "handled, or the group subscribed later", nil
	case redisdelay.StateDead:
		text := fmt.Sprintf("dead since %s, because: %s", e.clock(status.BuriedAt), status.Reason)
		if last := status.Content.LastError; !strings.Contains(status.Reason, last) {
			text += "; the last error was: " + last
		}
		return text, nil
	}
	return e.unsettled(ctx, status)
}

// unsettled says where a message stands for a group that is to handle it.
func (e *explainer) unsettled(ctx context.Context, status GroupStatus) (string, error) {
	g, err := e.observed(ctx, status)
	if err != nil {
		return "", err
	}
	if g.State == redisdelay.StateInDelivery {
		return e.leased(ctx, g)
	}
	waiting := e.waiting(g)
	if g.DueAt.After(e.message.At) {
		return waiting, nil
	}
	fate, err := e.fate(ctx, g)
	if err != nil {
		return waiting, err
	}
	turn, err := e.turn(ctx, g, fate)
	return join(waiting, turn, ""), err
}

// waiting says what a message in the queue of a group waits for.
func (e *explainer) waiting(g observedGroup) string {
	if g.State != redisdelay.StateRetrying {
		return join(e.due(g.DueAt), e.expiry(g), "")
	}
	text := fmt.Sprintf("waiting for retry %d", g.Attempts)
	if maximum := g.maxDeliveries(); maximum > 1 {
		text += fmt.Sprintf(" of %d", maximum-1)
	}
	text += ", " + e.due(g.DueAt)
	if g.Content.LastError != "" {
		text += ", after: " + g.Content.LastError
	}
	return join(text, e.expiry(g), "")
}

// expiry says that a message has expired, or will have when it is due; "" for neither.
func (e *explainer) expiry(g observedGroup) string {
	at := e.expiresAt(g)
	switch {
	case at.IsZero():
	case !at.After(e.message.At):
		return "it expired at " + e.clock(at)
	case !at.After(g.DueAt):
		return "it expires before, at " + e.clock(at)
	}
	return ""
}

// expiresAt is when the message expires for a group; zero if it does not, or that is not known.
func (e *explainer) expiresAt(g observedGroup) (at time.Time) {
	content := g.Content // as the group's last Nack left it
	if content.Body == nil {
		content = e.message.Content
	}
	if content.Message != nil {
		at, _ = redisdelay.Expiration(content.Message) // the consumer that cannot read it makes a dead message
	}
	return at
}

// maxDeliveries is what the group's consumers say; 0 if none does.
func (g observedGroup) maxDeliveries() int {
	maximum := 0
	for _, c := range g.consumers {
		maximum = max(maximum, c.Info.MaxDeliveries)
	}
	return maximum
}

// leased says who holds a message.
func (e *explainer) leased(ctx context.Context, g observedGroup) (string, error) {
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
	text = join(text, e.expiry(g), "")
	why, err := e.obstacle(ctx, g)
	if err != nil || why != "" {
		return join(text, why, ""), err
	}
	fate, err := e.fate(ctx, g)
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
			remaining, why = append(remaining, fmt.Sprintf("%s (%s)", s.group, s.state)), s.group+": "+s.text
		}
	}
	if len(done) == 0 {
		return strings.Join(e.lines(), "; ")
	}
	text := "handled by " + strings.Join(done, ", ") + "; not by "
	if len(remaining) == 1 {
		return text + why
	}
	return text + strings.Join(remaining, ", ")
}

func (e *explainer) lines() []string {
	lines := make([]string, len(e.groups))
	for i, s := range e.groups {
		lines[i] = s.group + ": " + s.text
	}
	return lines
}

// clock is a time of day, with its date if that is not the message's day. Programs may show it in another zone.
func (e *explainer) clock(t time.Time) string { return clock(t, e.message.At) }

// clock is a time of day, with its date if that is another day than now.
func clock(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	text := t.Format("15:04:05")
	text = strings.TrimSuffix(text, ":00")
	if t.Format(time.DateOnly) != now.Format(time.DateOnly) {
		text = t.Format(time.DateOnly) + " " + text
	}
	return text + t.Format(" MST")
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

// turn says when a message that is due has its turn in a group, and what becomes of it then; ""
// for a delivery.
func (e *explainer) turn(ctx context.Context, g observedGroup, fate string) (string, error) {
	group, due := g.Group, g.DueAt
	why, err := e.behind(ctx, g)
	if err == nil && why == "" {
		why, err = e.obstacle(ctx, g)
	}
	if err != nil || why != "" {
		return why, err
	}
	before, err := e.before(ctx, group, due)
	if err != nil {
		return "", err
	}
	if before > 0 {
		text := humanize.Count(before, "due message is", "due messages are") + " before it"
		if fate != "" {
			text += "; then a claim " + fate
		}
		return text, nil
	}
	if fate != "" {
		return "the next claim " + fate, nil
	}
	counts, err := e.counts(ctx, group)
	text := "next for a free worker"
	if counts.InDelivery > 0 {
		text += ": its consumers have " + humanize.Count(counts.InDelivery, "message", "messages")
	}
	return text, err
}

// counts is what a group has in the message's partition.
func (e *explainer) counts(ctx context.Context, group string) (inspect.GroupCounts, error) {
	counts, err := inspect.ReadCounts(ctx, e.partition, []string{group}, inspect.Nothing)
	return counts.Groups[group], err
}

// before counts the due messages that a group gets before the message: those in its queue, and
// those that no group has been given yet.
func (e *explainer) before(ctx context.Context, group string, due time.Time) (int, error) {
	g := e.partition.Group(group)
	queued, err := inspect.CountBefore(ctx, g, inspect.InQueue, due.UnixMilli(), e.message.ID)
	if err != nil {
		return 0, err
	}
	scheduled, err := inspect.CountBefore(ctx, g, inspect.InScheduled, due.UnixMilli(), e.message.ID)
	return queued + scheduled, err
}

// fate is what the next claim does with the message if it does not deliver it: "" if it does, or
// that is not certain.
func (e *explainer) fate(ctx context.Context, g observedGroup) (string, error) {
	const buries = "dead-letters it"
	if e.message.Content.Body == nil {
		return buries, nil
	}
	end := ""
	if at := e.expiresAt(g); !at.IsZero() && !at.After(e.message.At) {
		end = "ends it unhandled"
	}
	limit := g.certainLimit()
	if limit == 0 {
		return end, nil
	}
	found, err := inspect.LookIn(ctx, e.partition, e.message.ID, "")
	if errors.Is(err, ErrMessageNotFound) { // it has gone meanwhile
		return "", nil
	}
	for _, f := range found.Groups {
		if reason := f.Exhausted(limit); f.Group == g.Group && reason != "" {
			return buries + ": " + reason, err
		}
	}
	return end, err
}

// certainLimit is how many deliveries all consumers of a group allow at most; 0 if one of them
// allows any number.
func (g observedGroup) certainLimit() int {
	if slices.ContainsFunc(g.consumers, func(c inspect.Consumer) bool { return c.Info.MaxDeliveries == 0 }) {
		return 0
	}
	return g.maxDeliveries()
}

// obstacle says what keeps a group from a message that is due; "" if nothing is known to.
func (e *explainer) obstacle(ctx context.Context, g observedGroup) (string, error) {
	group := g.Group
	if tombstone, retired := e.groupList.Retired[group]; retired {
		if tombstone.Expired {
			return fmt.Sprintf("group %s has ended without a consumer, and what it holds is being freed", group), nil
		}
		return fmt.Sprintf("group %s is retired since %s", group, e.clock(tombstone.Since)), nil
	}
	if p := pauseOf(e.groupList, group); p != nil {
		return pausedText(group, p, e.message.At), nil
	}
	if len(g.consumers) == 0 {
		return noConsumer(group), nil
	}
	share, limited := e.groupList.Limits[group]
	if !limited {
		return "", nil
	}
	return e.limited(ctx, group, share)
}

// limited says which limit of a group is reached in the message's partition; "" for none.
func (e *explainer) limited(ctx context.Context, group string, share inspect.Share) (string, error) {
	if share.NextClaim().After(e.groupList.Now) {
		per := humanize.Duration(share.Whole.Per)
		if share.Whole.Per.Seconds() == 1 {
			per = "s"
		}
		return fmt.Sprintf("the limit of %d/%s of group %s is reached", share.Whole.Messages, per, group), nil
	}
	if share.MaxInFlight == 0 {
		return "", nil
	}
	counts, err := e.counts(ctx, group)
	if err != nil || counts.InDelivery < share.MaxInFlight {
		return "", err
	}
	text := fmt.Sprintf("the limit of %d in flight of group %s is reached", share.Whole.MaxInFlight, group)
	if share.MaxInFlight < share.Whole.MaxInFlight {
		text += fmt.Sprintf(" (%d in its partition)", share.MaxInFlight)
	}
	return text, nil
}
