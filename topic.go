package redisdelay

import (
	"context"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/publish"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// topic is a topic as package publish uses it.
type topic struct {
	*queue.Topic
	window time.Duration // for how long keys stay taken
}

var _ publish.Topic = topic{}

// Enlist lists the topic, with the version of the protocol that has windows if it uses one.
func (t topic) Enlist(ctx context.Context) error {
	if t.window > 0 {
		return t.Advance(ctx)
	}
	return t.Topic.Enlist(ctx)
}

func (t topic) Unrecord(ctx context.Context, partition int, publishers []string) error {
	return t.Partition(partition).Unrecord(ctx, publishers)
}

func (t topic) Push(ctx context.Context, partition int, b queue.Batch) ([]queue.Duplicate, error) {
	return t.Partition(partition).Push(ctx, b)
}
