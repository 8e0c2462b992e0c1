// Package queue keeps topics and their messages in Redis. It is the only package that
// issues Redis commands; the guarantees live in its Lua scripts, one file each.
package queue

import "github.com/redisdelay/watermill-redisdelay/internal/script"

// MaxMessages is how many messages one script call takes at most.
const MaxMessages = 1000

// Partition is one partition of a topic, as publishers see it. It is safe for
// concurrent use.
type Partition struct {
	*script.Partition
	putKeys []string // KEYS of what is called most
	callers callers  // of Cancel and Reschedule
}

// NewPartition returns a partition of a topic. It does no I/O.
func NewPartition(store *Store, topic string, number int) *Partition {
	k := store.Client.Partition(topic, number)
	return &Partition{Partition: k, putKeys: k.Keys(putScript, "")}
}
