package inspect

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// Backlog counts the messages that await groups.
type Backlog struct {
	Due        int // messages that are due, not yet given to the groups
	Queued     int // messages that wait for a group, including retries
	InDelivery int // messages that a consumer holds
}

// CountBacklog counts the messages that await a group, or all groups if it is "".
func CountBacklog(ctx context.Context, t *queue.Topic, group string) (Backlog, error) {
	if err := t.Known(ctx); err != nil {
		return Backlog{}, err
	}
	names, number, err := t.Groups(ctx)
	if err != nil {
		return Backlog{}, err
	}
	if group != "" {
		if !slices.Contains(names, group) {
			return Backlog{}, fmt.Errorf("%w: %q", queue.ErrGroupNotFound, group)
		}
		names = []string{group}
	}
	var mu sync.Mutex
	var sum Backlog
	err = t.Visit(ctx, 0, number, func(ctx context.Context, p *queue.Partition) error {
		b, err := backlogOf(ctx, p, names)
		mu.Lock()
		defer mu.Unlock()
		sum.Due, sum.Queued, sum.InDelivery = sum.Due+b.Due, sum.Queued+b.Queued, sum.InDelivery+b.InDelivery
		return err
	})
	return sum, err
}

// backlog counts the messages that await groups in the partition. Messages not yet given
// to the groups count once.
func backlogOf(ctx context.Context, p *queue.Partition, names []string) (Backlog, error) {
	var sum Backlog
	for _, name := range names {
		reply, err := p.Group(name).Run(ctx, backlogScript, nil)
		if err != nil {
			return Backlog{}, err
		}
		sum = Backlog{reply.Count(), sum.Queued + reply.Count(), sum.InDelivery + reply.Count()}
		if err := reply.End(); err != nil {
			return Backlog{}, err
		}
	}
	return sum, nil
}
