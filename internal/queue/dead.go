package queue

import (
	"context"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// Requeue makes dead letters due again, as if they had never been delivered, if they were
// buried no later than a time by Redis's clock, in ms. It returns the ids of the others.
func Requeue(ctx context.Context, g *Group, latest int64, ids []string) ([]string, error) {
	return g.RunForTexts(ctx, requeueScript, append([]any{g.Name(), g.Partition().Channel(), latest}, script.Strings(ids)...))
}

// Discard removes dead letters for good, if they were buried no later than a time by
// Redis's clock, in ms. It returns the ids of the others.
func Discard(ctx context.Context, g *Group, latest int64, ids []string) ([]string, error) {
	lists, err := g.RunUntilDone(ctx, discardScript, 2, []any{g.Name(), MaxFreedBytes, latest}, ids)
	return lists[0], err
}
