package inspect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// KeyFaults are keys that another program has overwritten or set to expire.
type KeyFaults struct {
	Types    []*script.WrongTypeError // have a wrong type
	Volatile []string                 // expire, although this library sets no expiry on them
}

func (k *KeyFaults) add(more KeyFaults) {
	k.Types, k.Volatile = append(k.Types, more.Types...), append(k.Volatile, more.Volatile...)
}

// FindKeyFaults checks the keys of the partition and of some groups.
func FindKeyFaults(ctx context.Context, p *queue.Partition, groups []string) (KeyFaults, error) {
	return keyFaults(ctx, p.Client(), p.All(groups))
}

// FindPrefixKeyFaults checks the keys of a prefix that belong to no topic.
func FindPrefixKeyFaults(ctx context.Context, c *script.Client) (KeyFaults, error) {
	var all KeyFaults
	for k := range script.Scheduled {
		f, err := keyFaults(ctx, c, []script.Key{{Name: c.PrefixKey(k), Kind: k}})
		if err != nil {
			return all, err
		}
		all.add(f)
	}
	return all, nil
}

// keyFaults checks some keys in one slot.
func keyFaults(ctx context.Context, c *script.Client, keys []script.Key) (KeyFaults, error) {
	var all KeyFaults
	for chunk := range slices.Chunk(keys, script.PipelineSize) {
		f, err := script.RunAbandonable(ctx, c, func(ctx context.Context) (KeyFaults, error) { return faultsOf(ctx, c, chunk) })
		if err != nil {
			return all, err
		}
		all.add(f)
	}
	return all, nil
}

func faultsOf(ctx context.Context, c *script.Client, keys []script.Key) (faults KeyFaults, err error) {
	node, err := c.Master(ctx, keys[0].Name)
	if err != nil {
		return faults, err
	}
	types, ends := make([]*redis.StatusCmd, len(keys)), make([]*redis.DurationCmd, len(keys))
	_, err = node.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, key := range keys {
			types[i], ends[i] = pipe.Type(ctx, key.Name), pipe.PTTL(ctx, key.Name)
		}
		return nil
	})
	for i, key := range keys {
		if got := types[i].Val(); err == nil && got != key.Type() && got != "none" {
			faults.Types = append(faults.Types, &script.WrongTypeError{Key: key.Name, Type: got, Want: key.Type()})
		}
		if ends[i].Val() > 0 && !key.Expires() { // negative: no expiry, or no key
			faults.Volatile = append(faults.Volatile, key.Name)
		}
	}
	return faults, err
}

// Persist removes the expiry of keys.
func Persist(ctx context.Context, c *script.Client, keys []string) error {
	for _, key := range keys {
		_, err := script.RunAbandonable(ctx, c, func(ctx context.Context) (bool, error) { return c.Redis().Persist(ctx, key).Result() })
		if err != nil {
			return err
		}
	}
	return nil
}

// ErrCannotScan says that Redis or its client does not list keys.
var ErrCannotScan = errors.New("keys cannot be listed")

// scannedAt is the number of keys that Redis scans in one call for Unlisted.
const scannedAt = 1000

// Unlisted returns the topics that have keys and are not in a list, sorted. It scans all keys of the database, in bounded steps.
// The error may be ErrCannotScan.
func Unlisted(ctx context.Context, c *script.Client, list []string) ([]string, error) {
	nodes, err := script.RunAbandonable(ctx, c, func(ctx context.Context) ([]redis.UniversalClient, error) { return masters(ctx, c) })
	if err != nil {
		return nil, err
	}
	missing := map[string]bool{}
	for _, node := range nodes {
		for cursor := uint64(0); ; {
			keys, err := script.RunAbandonable(ctx, c, func(ctx context.Context) (page, error) { return scanKeys(ctx, node, cursor, c.KeyPattern()) })
			if err != nil {
				return nil, err
			}
			for _, key := range keys.names {
				missing[c.TopicOf(key)] = true
			}
			if cursor = keys.next; cursor == 0 {
				break
			}
		}
	}
	delete(missing, "") // keys of no topic
	for _, name := range list {
		delete(missing, name)
	}
	return slices.Sorted(maps.Keys(missing)), nil
}

// masters returns clients of all nodes that have keys.
func masters(ctx context.Context, c *script.Client) ([]redis.UniversalClient, error) {
	if c.Cluster() == nil {
		return []redis.UniversalClient{c.Redis()}, nil
	}
	cluster, is := c.Cluster().(interface {
		ForEachMaster(ctx context.Context, do func(context.Context, *redis.Client) error) error
	})
	if !is {
		return nil, fmt.Errorf("%w: the client has no ForEachMaster", ErrCannotScan)
	}
	var mu sync.Mutex
	var nodes []redis.UniversalClient
	err := cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, node)
		return nil
	})
	return nodes, err
}

type page struct {
	names []string
	next  uint64
}

func scanKeys(ctx context.Context, node redis.UniversalClient, cursor uint64, pattern string) (page, error) {
	names, next, err := node.Scan(ctx, cursor, pattern, scannedAt).Result()
	if err != nil && script.CommandRefused(ctx, node, err) {
		err = fmt.Errorf("%w: %w", ErrCannotScan, err)
	}
	return page{names, next}, err
}
