package redisdelay

import (
	"context"

	"github.com/redisdelay/watermill-redisdelay/internal/publish"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// topic is a topic as package publish sees it.
type topic struct {
	*queue.Topic
	unlisted
}

var _ publish.Topic = topic{}

// unlisted stands in for queue.Topic.Enlist. Once that exists, this does not compile any
// more, and unlisted goes.
type unlisted struct{}

func (unlisted) Enlist(context.Context) error { return nil }

func (t topic) Push(ctx context.Context, partition int, b queue.Batch) ([]queue.Duplicate, error) {
	return t.Partition(partition).Push(ctx, b)
}
