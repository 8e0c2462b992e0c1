package queue

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// DeadLetter is a message that a group could not handle.
type DeadLetter struct {
	ID       string
	BuriedAt time.Time
	Reason   string
	Body     []byte // nil if it is missing
}

// DeadLetters returns the group's dead letters, the oldest first, limit at most.
func (g *Group) DeadLetters(ctx context.Context, limit int) ([]DeadLetter, error) {
	p := g.part
	dead, err := g.client.ZRangeWithScores(ctx, p.dead(g.name), 0, int64(limit)-1).Result()
	if err != nil || len(dead) == 0 {
		return nil, explain(ctx, g.client, p, []string{p.dead(g.name)}, err)
	}
	ids, letters := make([]string, len(dead)), make([]DeadLetter, len(dead))
	for i, entry := range dead {
		ids[i], _ = entry.Member.(string)
		letters[i] = DeadLetter{ID: ids[i], BuriedAt: time.UnixMilli(int64(entry.Score))}
	}
	keys := []string{p.reasons(g.name), p.messages(), p.changed(g.name)}
	replies := make([]*redis.SliceCmd, len(keys))
	if _, err := g.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, key := range keys {
			replies[i] = pipe.HMGet(ctx, key, ids...)
		}
		return nil
	}); err != nil {
		return nil, explain(ctx, g.client, p, keys, err)
	}
	for i := range letters {
		letters[i].Reason, _ = replies[0].Val()[i].(string)
		for _, reply := range replies[1:] {
			if body, ok := reply.Val()[i].(string); ok {
				letters[i].Body = []byte(body)
			}
		}
	}
	return letters, nil
}

// Requeue makes dead letters due again, as if they had not been delivered yet. It
// returns the ids of those that are no dead letters.
func (g *Group) Requeue(ctx context.Context, ids []string) ([]string, error) {
	p := g.part
	return g.settle(ctx, requeueScript, []string{
		p.dead(g.name), p.reasons(g.name), p.attempts(g.name), p.queue(g.name),
	}, append([]any{g.name, g.client.channel(p)}, anys(ids)...))
}

// Discard removes dead letters for good. It returns the ids of those that are no
// dead letters.
func (g *Group) Discard(ctx context.Context, ids []string) ([]string, error) {
	p := g.part
	return g.settle(ctx, discardScript, []string{
		p.dead(g.name), p.reasons(g.name), p.attempts(g.name), p.messages(), p.refs(),
		p.changed(g.name), p.keys(),
	}, anys(ids))
}
