package inspect

import (
	"context"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// Seen is a message with the score that a caller has read. An operation skips a message whose score has since changed.
type Seen struct{ ID, Score string }

// Withdraw deletes up to MaxMessages scheduled messages. It returns the ids of messages that are no longer scheduled for the
// time that was read.
func Withdraw(ctx context.Context, p *queue.Partition, some []Seen) (left []string, err error) {
	for len(some) > 0 {
		reply, err := p.Run(ctx, withdrawScript, "", append([]any{queue.MaxFreedBytes}, pairs(some)...))
		if err != nil {
			return left, err
		}
		others, again := reply.Texts(), reply.Texts()
		if len(again) >= len(some) {
			reply.Fail("all %d ids are left", len(some))
		}
		if err := reply.End(); err != nil {
			return left, err
		}
		left, some = append(left, others...), only(some, again)
	}
	return left, nil
}

// pairs returns messages as arguments of the scripts.
func pairs(some []Seen) []any {
	args := make([]any, 0, 2*len(some))
	for _, s := range some {
		args = append(args, s.ID, s.Score)
	}
	return args
}

// only returns the messages that have these ids.
func only(some []Seen, ids []string) []Seen {
	wanted := make(map[string]bool, len(ids))
	for _, id := range ids {
		wanted[id] = true
	}
	var list []Seen
	for _, s := range some {
		if wanted[s.ID] {
			list = append(list, s)
		}
	}
	return list
}

// Retime gives up to MaxMessages waiting messages of a place (InScheduled, InQueue or InLine) a new due time by Redis's clock,
// in ms. Messages InLine keep their due times if the new one is in the past. It returns the ids of messages that no longer
// wait in the place for the time that was read.
func Retime(ctx context.Context, g *queue.Group, place Place, due int64, some []Seen) (left []string, err error) {
	args := append([]any{place.set(), due, g.Partition().Channel()}, pairs(some)...)
	return g.RunForTexts(ctx, retimeScript, args)
}
