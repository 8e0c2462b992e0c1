package inspect

import (
	"context"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// Seen is a message with the score that a caller has read. An operation skips a message whose score has since changed.
type Seen struct{ ID, Score string }

// CancelScheduled deletes up to MaxMessages scheduled messages. It returns the ids of messages that are no longer scheduled for
// the time that was read.
func CancelScheduled(ctx context.Context, p *queue.Partition, messages []Seen) (left []string, err error) {
	for len(messages) > 0 {
		reply, err := p.Run(ctx, cancelScheduledScript, "", append([]any{queue.MaxFreedBytes}, pairs(messages)...))
		if err != nil {
			return left, err
		}
		others, again := reply.Texts(), reply.Texts()
		if len(again) >= len(messages) {
			reply.Fail("all %d ids are left", len(messages))
		}
		if err := reply.End(); err != nil {
			return left, err
		}
		left, messages = append(left, others...), only(messages, again)
	}
	return left, nil
}

// pairs returns messages as arguments of the scripts.
func pairs(messages []Seen) []any {
	args := make([]any, 0, 2*len(messages))
	for _, s := range messages {
		args = append(args, s.ID, s.Score)
	}
	return args
}

// only returns the messages that have these ids.
func only(messages []Seen, ids []string) []Seen {
	wanted := make(map[string]bool, len(ids))
	for _, id := range ids {
		wanted[id] = true
	}
	var list []Seen
	for _, s := range messages {
		if wanted[s.ID] {
			list = append(list, s)
		}
	}
	return list
}

// RescheduleWaiting gives up to MaxMessages waiting messages of a place (InScheduled, InQueue or InLine) a new due time by
// Redis's clock, in ms. Messages InLine keep their due times if the new one is in the past. It returns the ids of messages that
// no longer wait in the place for the time that was read.
func RescheduleWaiting(ctx context.Context, g *queue.Group, place Place, due int64, messages []Seen) (left []string, err error) {
	args := append([]any{place.set(), due, g.Partition().Channel()}, pairs(messages)...)
	return g.RunForTexts(ctx, rescheduleWaitingScript, args)
}
