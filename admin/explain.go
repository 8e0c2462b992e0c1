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
	Message              Message
	Tick                 string             // the tick of package periodic, such as "tick of report-eu for Monday 2026-11-30 07:00 UTC"; "": none
	Summary              string             // one sentence, such as "due in 29m"; it begins with Tick
	SummaryWithoutGroups string             // for programs that also show Groups; "" if it adds nothing to them
	Groups               []GroupExplanation // sorted by name: the groups of Message or, while it is scheduled, of the topic
	BlockedBy            []string           // the ids of other messages of its ordering key that it waits behind
}

// GroupExplanation is where a message is for a group, and why.
type GroupExplanation struct{ Group, Text string }

// String returns "group: text".
func (g GroupExplanation) String() string { return g.Group + ": " + g.Text }

// Explain explains where a message is and what it waits for: its due time, a retry, another message of its ordering
// key, a pause, a limit, a consumer. The texts have times of the local time zone. The errors are those of Message.
func (a *Admin) Explain(ctx context.Context, topic string, ref Ref) (Explanation, error) {
	t, message, err := a.locate(ctx, topic, ref)
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
	tick, lost := tickOf(message), ""
	if message.Content.Body == nil {
		lost = "its body is missing"
	}
	brief, why := e.overall()
	return Explanation{
		Message: message, Tick: tick, Summary: sentenceOf(tick, lost, brief, why), SummaryWithoutGroups: sentenceOf(tick, lost, brief),
		Groups: e.groups, BlockedBy: slices.Compact(slices.Sorted(slices.Values(e.ahead))),
	}, nil
}

// sentenceOf joins the parts of a sentence that are not empty.
func sentenceOf(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ": ")
}

// explainer describes the state of one message.
type explainer struct {
	admin     *Admin
	topic     topic
	partition *queue.Partition
	groupList inspect.GroupList // of the message's partition, where claims obey it
	message   Message
	groups    []GroupExplanation // one for each group

	mu    sync.Mutex
	ahead []string // guarded by mu; Explanation.BlockedBy
}

func (e *explainer) explain(ctx context.Context) error {
	if e.message.Scheduled {
		return e.explainScheduled(ctx)
	}
	e.groups = make([]GroupExplanation, len(e.message.Groups))
	return each(len(e.groups), func(i int) error {
		text, err := e.status(ctx, i)
		e.groups[i] = GroupExplanation{e.message.Groups[i].Group, text}
		return err
	})
}

// explainScheduled explains, for each group, a message that no group has been given.
func (e *explainer) explainScheduled(ctx context.Context) error {
	e.groups = make([]GroupExplanation, len(e.groupList.Groups))
	return each(len(e.groups), func(i int) error {
		name := e.groupList.Groups[i]
		text, err := e.due(e.message.DueAt), error(nil)
		if !e.message.DueAt.After(e.message.At) {
			text, err = e.unsettled(ctx, MessageInGroup{Group: name, DueAt: e.message.DueAt})
		}
		e.groups[i] = GroupExplanation{name, text}
		return err
	})
}

// observedGroup is the state of the message for a group, with the live consumers of the group.
type observedGroup struct {
	MessageInGroup
	consumers []inspect.Consumer
}

func (e *explainer) observed(ctx context.Context, g MessageInGroup) (observedGroup, error) {
	consumers, err := inspect.Consumers(ctx, e.partition.Group(g.Group))
	return observedGroup{g, consumers}, err
}

// status describes the state of the message for a group.
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

// unsettled describes a message that a group has not settled.
func (e *explainer) unsettled(ctx context.Context, status MessageInGroup) (string, error) {
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

// waiting describes a message in the queue of a group.
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

// expiry says that a message has expired, or will expire before it is due; "" for neither.
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

// expiresAt returns when the message expires for a group; zero if it does not expire or cannot be decoded.
func (e *explainer) expiresAt(g observedGroup) (at time.Time) {
	content := g.Content // with the metadata of the group's last Nack
	if content.Body == nil {
		content = e.message.Content
	}
	if content.Message != nil {
		at, _ = redisdelay.Expiration(content.Message) // a consumer dead-letters a message with an invalid expiration
	}
	return at
}

// maxDeliveries returns the MaxDeliveries of the group's consumers; 0 if none has a limit.
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
		if g.Extensions > 0 {
			text += ", extended " + humanize.Times(g.Extensions)
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

// overall returns the summary of all groups in two parts: why repeats the texts of the groups, and brief does not.
func (e *explainer) overall() (brief, why string) {
	if e.message.Scheduled {
		switch {
		case len(e.groups) == 0:
			return join(e.due(e.message.DueAt), "no group is registered", ""), ""
		case e.message.DueAt.After(e.message.At):
			return e.due(e.message.DueAt), ""
		}
		return "", e.together()
	}
	var done, remaining []string
	for i, g := range e.message.Groups {
		if g.State == redisdelay.StateDone {
			done = append(done, g.Group)
		} else {
			remaining, why = append(remaining, fmt.Sprintf("%s (%s)", g.Group, g.State)), e.groups[i].Text
		}
	}
	switch {
	case len(remaining) == 0:
		return "no group needs it, and its body is left", ""
	case len(done) == 0:
		return "", e.together()
	case len(remaining) > 1:
		why = ""
	}
	return "handled by " + strings.Join(done, ", ") + "; not by " + strings.Join(remaining, ", "), why
}

// together returns the texts of all groups, or one text if they are equal.
func (e *explainer) together() string {
	if !slices.ContainsFunc(e.groups, func(g GroupExplanation) bool { return g.Text != e.groups[0].Text }) {
		return e.groups[0].Text
	}
	texts := make([]string, len(e.groups))
	for i, line := range e.groups {
		texts[i] = line.String()
	}
	return strings.Join(texts, "; ")
}

// clock returns a time of day, with the date if it is not today.
func (e *explainer) clock(t time.Time) string { return clock(t, e.message.At) }

// clock returns a time of day, with the date if it is another day than that of now.
func clock(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	text := t.Format("15:04:05")
	text = strings.TrimSuffix(text, ":00")
	if t.Format(time.DateOnly) != now.Format(time.DateOnly) {
		text = t.Format(time.DateOnly) + " " + text
	}
	return text + t.Format(" MST")
}

// join joins a statement and its reason, or another reason if why is empty.
func join(what, why, otherwise string) string {
	if why == "" {
		why = otherwise
	}
	if why == "" {
		return what
	}
	return what + "; " + why
}

// turn says what a due message waits for in a group, and what the next claim does with it.
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

// counts returns the counts of a group in the message's partition.
func (e *explainer) counts(ctx context.Context, group string) (inspect.GroupCounts, error) {
	counts, err := inspect.ReadCounts(ctx, e.partition, []string{group}, inspect.Nothing)
	return counts.Groups[group], err
}

// before counts the due messages that a group receives before the message, including those that no group has been given
// yet.
func (e *explainer) before(ctx context.Context, group string, due time.Time) (int, error) {
	g := e.partition.Group(group)
	queued, err := inspect.CountBefore(ctx, g, inspect.InQueue, due.UnixMilli(), e.message.ID)
	if err != nil {
		return 0, err
	}
	scheduled, err := inspect.CountBefore(ctx, g, inspect.InScheduled, due.UnixMilli(), e.message.ID)
	return queued + scheduled, err
}

// fate says what the next claim does with the message instead of delivering it; "" if it delivers the message, or if
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
	found, err := inspect.LocateIn(ctx, e.partition, e.message.ID, "")
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

// certainLimit returns the highest MaxDeliveries of a group's consumers; 0 if one of them has no limit.
func (g observedGroup) certainLimit() int {
	if slices.ContainsFunc(g.consumers, func(c inspect.Consumer) bool { return c.Info.MaxDeliveries == 0 }) {
		return 0
	}
	return g.maxDeliveries()
}

// obstacle says why a group does not receive a due message; "" if no reason is known.
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
