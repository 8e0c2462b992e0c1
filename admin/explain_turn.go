package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
)

const (
	// farFrom is how many due messages are before one whose turn is worth an estimate.
	farFrom = 1000

	// watchFor is for how long an estimate looks at how fast they go.
	watchFor = time.Second
)

// turn says when a message that is due has its turn in a group, and what becomes of it then; ""
// for a delivery.
func (e *explainer) turn(ctx context.Context, group string, due time.Time, fate string) (string, error) {
	why, err := e.obstacle(ctx, group)
	if err != nil || why != "" {
		return why, err
	}
	before, err := e.before(ctx, group, due)
	if err != nil {
		return "", err
	}
	if before > 0 {
		text := humanize.Count(before, "due message is", "due messages are") + " before it"
		if before >= farFrom && len(e.groups) <= atOnce {
			pace, err := e.pace(ctx, group, due, before)
			if err != nil {
				return "", err
			}
			text += pace
		}
		if fate != "" {
			text += "; then a claim " + fate
		}
		return text, nil
	}
	if fate != "" {
		return "the next claim " + fate, nil
	}
	tally, err := inspect.ReadTally(ctx, e.partition.Group(group))
	text := "next for a free worker"
	if tally.InDelivery > 0 {
		text += ": its consumers have " + humanize.Count(tally.InDelivery, "message", "messages")
	}
	return text, err
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

// pace looks for a moment at how fast the messages before this one go, and estimates when its turn
// comes.
func (e *explainer) pace(ctx context.Context, group string, due time.Time, before int) (string, error) {
	start := time.Now()
	wait(ctx, watchFor)
	left, err := e.before(ctx, group, due)
	if err != nil {
		return "", err
	}
	took := time.Since(start)
	perSecond := float64(before-left) / took.Seconds()
	if perSecond <= 0 {
		return ", and none of them has gone within " + humanize.Duration(took), nil
	}
	rest := time.Duration(float64(left) / perSecond * float64(time.Second))
	return fmt.Sprintf(", and some %s a second go: its turn comes in about %s", humanize.Number(int(max(1, perSecond))), humanize.Duration(rest)), nil
}

// fate is what the next claim does with the message if it does not deliver it: "" if it does, or
// that is not certain.
func (e *explainer) fate(ctx context.Context, group string) (string, error) {
	const buries = "makes it a dead letter"
	if e.message.Content.Body == nil {
		return buries, nil
	}
	limit, err := e.certainLimit(ctx, group)
	if err != nil || limit == 0 {
		return "", err
	}
	found, err := inspect.LookIn(ctx, e.partition, e.message.ID, "")
	if errors.Is(err, ErrMessageNotFound) { // it has gone meanwhile
		return "", nil
	}
	for _, f := range found.Groups {
		if reason := f.Exhausted(limit); f.Group == group && reason != "" {
			return buries + ": " + reason, err
		}
	}
	return "", err
}

// certainLimit is how many deliveries all consumers of a group allow at most; 0 if one of them
// allows any number.
func (e *explainer) certainLimit(ctx context.Context, group string) (int, error) {
	consumers, err := inspect.Consumers(ctx, e.partition.Group(group))
	limit := 0
	for _, c := range consumers {
		if c.About.MaxDeliveries == 0 {
			return 0, err
		}
		limit = max(limit, c.About.MaxDeliveries)
	}
	return limit, err
}
