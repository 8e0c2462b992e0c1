package redisdelay

import (
	"context"

	"github.com/redisdelay/watermill-redisdelay/internal/publish"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// topic is a topic as package publish uses it.
type topic struct{ *queue.Topic }

var _ publish.Topic = topic{}

func (t topic) Push(ctx context.Context, partition int, b queue.Batch) ([]queue.Duplicate, error) {
	return t.Partition(partition).Push(ctx, b)
}
