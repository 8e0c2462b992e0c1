package inspect

import (
	"context"
	"fmt"
	"slices"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// DeleteTopic deletes all keys of the topic, and removes it from the list of topics. A repeated call continues an earlier
// one. Partition 0 is deleted last, because it has the number of partitions.
func DeleteTopic(ctx context.Context, t *queue.Topic) error {
	if err := t.RequireListed(ctx); err != nil {
		return err
	}
	for done := 1; ; {
		number, err := t.Partitions(ctx)
		if err != nil {
			return err
		}
		if number <= done {
			break
		}
		if err := t.EachIn(ctx, done, number, func(ctx context.Context, p *queue.Partition) error { return drop(ctx, p) }); err != nil {
			return err
		}
		done = number
	}
	if err := drop(ctx, t.Partition(0)); err != nil {
		return err
	}
	return delist(ctx, t.Store(), t.Name())
}

// drop deletes all keys of the partition, including those of retired groups, and of groups that only refs names.
func drop(ctx context.Context, p *queue.Partition) error {
	names, err := groupsInRefs(ctx, p)
	if err != nil {
		return err
	}
	until := int64(0) // so that the first call only asks
	for range 6 {
		args := append([]any{until}, script.Strings(names)...)
		reply, err := p.Run(ctx, dropScript, "", args, names...)
		if err != nil {
			return err
		}
		if reply.Begins("dropped") {
			return nil
		}
		reply.Text() // "groups"
		until = reply.Time().Add(script.RemainingTime(ctx)).UnixMilli()
		names = append(names, reply.Rest()...)
		if err := reply.End(); err != nil {
			return err
		}
		slices.Sort(names)
		names = slices.Compact(names)
	}
	return queue.ErrGroupsKeepChanging
}

// groupsInRefs lists the groups that refs names, which still need messages, in bounded steps.
func groupsInRefs(ctx context.Context, p *queue.Partition) ([]string, error) {
	var names []string
	for cursor := "0"; ; {
		reply, err := p.Run(ctx, groupsInRefsScript, "", []any{cursor})
		if err != nil {
			return nil, err
		}
		cursor = reply.Text()
		names = append(names, reply.Rest()...)
		slices.Sort(names)
		names = slices.Compact(names)
		if err := reply.End(); err != nil || cursor == "0" {
			return names, err
		}
	}
}

// delist removes a topic from the list of topics.
func delist(ctx context.Context, s *queue.Store, topic string) error {
	for range 3 {
		now, err := s.Now(ctx, s.Registry())
		if err != nil {
			return err
		}
		reply, err := s.Run(ctx, script.Call{
			Script: delistScript, Topic: topic, Partition: -1, Keys: []string{s.Registry()},
			Args: []any{topic, now + script.RemainingTime(ctx).Milliseconds()},
		})
		if err != nil {
			return err
		}
		if reply.Begins("delisted") {
			s.ForgetListing(topic)
			return nil
		}
	}
	return fmt.Errorf("%w: a call arrives later than it was sent for", script.ErrReply)
}
