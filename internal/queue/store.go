// Package queue stores topics and their messages in Redis. It has the operations of publishers and consumers; package inspect has
// those of operators. The guarantees live in its Lua scripts, one file each.
package queue

import (
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// Store holds the topics of a prefix in one Redis. It is safe for concurrent use.
type Store struct {
	*script.Client
	now func() time.Time

	mu            sync.Mutex
	listed        map[string]time.Time // guarded by mu; up to maxListed topics, and when each was last seen on the list
	listDownUntil time.Time            // guarded by mu; until then, no call waits for the list of topics
}

// NewStore returns the Store of a prefix in the Redis of a client that script.CheckClient accepts. It does no I/O. The
// observer sees each call.
func NewStore(client redis.UniversalClient, prefix string, observer observe.Observer) *Store {
	return &Store{Client: script.NewClient(client, prefix, observer), now: time.Now, listed: map[string]time.Time{}}
}

// Topic returns a topic. It does no I/O.
func (s *Store) Topic(name string) *Topic {
	return &Topic{store: s, name: name, propagated: 1}
}

// MaxMessages is the maximum number of messages in one script call.
const MaxMessages = 1000

// Partition is one partition of a topic, as publishers see it. It is safe for
// concurrent use.
type Partition struct {
	*script.Partition
	changes changes

	makePutKeys sync.Once // at the first Push: a process may have thousands of partitions that only consume
	putKeys     []string  // the KEYS of put.lua, the most frequent call
}

// NewPartition returns a partition of a topic. It does no I/O.
func NewPartition(store *Store, topic string, number int) *Partition {
	return &Partition{Partition: store.Partition(topic, number)}
}
