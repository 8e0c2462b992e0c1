package inspect

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// memorySamples is the number of entries of a key from which Redis estimates its size.
const memorySamples = 50

// Memory estimates the memory of the keys of the partition and of some of its groups, in bytes. It returns false if Redis
// refuses the command.
func Memory(ctx context.Context, p *queue.Partition, groups []string) (bytes int64, known bool, err error) {
	for chunk := range slices.Chunk(p.All(groups), script.PipelineSize) {
		size, err := script.RunAbandonable(ctx, p.Client(), func(ctx context.Context) (int64, error) { return memory(ctx, p.Client(), chunk) })
		if err != nil || size == unknown {
			return 0, false, err
		}
		bytes += size
	}
	return bytes, true, nil
}

const unknown = -1

// memory returns the memory of keys in one slot, or unknown.
func memory(ctx context.Context, c *script.Client, keys []script.Key) (bytes int64, err error) {
	node, err := c.Master(ctx, keys[0].Name)
	if err != nil {
		return 0, err
	}
	answers := make([]*redis.IntCmd, len(keys))
	_, _ = node.Pipelined(ctx, func(pipe redis.Pipeliner) error { // each has its own error
		for i, key := range keys {
			answers[i] = pipe.MemoryUsage(ctx, key.Name, memorySamples)
		}
		return nil
	})
	for _, a := range answers {
		size, err := a.Result()
		switch {
		case errors.Is(err, redis.Nil): // there is no such key
		case err != nil && script.CommandRefused(ctx, node, err):
			return unknown, nil
		case err != nil:
			return 0, err
		}
		bytes += size
	}
	return bytes, nil
}

// Listed is a topic on the list of topics.
type Listed struct{ Name, Version string }

// Topics returns the list of topics, sorted by name. It changes nothing.
func Topics(ctx context.Context, s *queue.Store) ([]Listed, error) {
	keys := []string{s.Registry()}
	if err := s.Check(ctx, keys[0]); err != nil {
		return nil, err
	}
	names := map[string]string{}
	err := scan(func(cursor string) (next string, err error) {
		reply, err := s.Run(ctx, script.Call{Script: topicsScript, Partition: -1, Keys: keys, Args: []any{cursor}})
		if err != nil {
			return "", err
		}
		next = reply.Text()
		for _, row := range reply.Pairs() {
			names[row[0]] = row[1]
		}
		return next, reply.End()
	})
	if err != nil {
		return nil, err
	}
	var list []Listed
	for name, version := range names {
		list = append(list, Listed{name, version})
	}
	slices.SortFunc(list, func(a, b Listed) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}
