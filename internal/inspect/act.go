package inspect

import (
	"context"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// Seen is a message with the score that a caller has seen. An operation skips a message whose score
// has changed since.
type Seen struct{ ID, Score string }

// Withdraw takes back scheduled messages, which no group has been given: up to MaxMessages. It returns the ids of those
// that are not scheduled for the time that was seen.
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

// pairs are messages as the scripts want them.
func pairs(some []Seen) []any {
	args := make([]any, 0, 2*len(some))
	for _, s := range some {
		args = append(args, s.ID, s.Score)
	}
	return args
}

// only returns those of the messages that have these ids.
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

// Retime makes messages that wait in a place, InScheduled, InQueue or InLine, due at a time by
// Redis's clock, in ms: up to MaxMessages. Messages InLine keep their due times if that time is over. It
// returns the ids of those that do not wait there for the time that was seen.
func Retime(ctx context.Context, g *queue.Group, place Place, due int64, some []Seen) (left []string, err error) {
	args := append([]any{place.set(), due, g.Partition().Channel()}, pairs(some)...)
	return g.RunForTexts(ctx, retimeScript, args)
}
