package publish

import (
	"context"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

type trailKey struct{}

// WithTrail returns a context for messages: Publishers tell note the ids under which they are
// about to store them. So whoever publishes them knows them when they come back. note must be
// safe for concurrent use.
func WithTrail(ctx context.Context, note func(ids []string)) context.Context {
	return context.WithValue(ctx, trailKey{}, note)
}

// leaveTrail tells whoever wants to know the ids of messages.
func leaveTrail(ctx context.Context, messages []queue.Message) {
	note, wanted := ctx.Value(trailKey{}).(func([]string))
	if !wanted {
		return
	}
	ids := make([]string, len(messages))
	for i, m := range messages {
		ids[i] = m.ID
	}
	note(ids)
}
