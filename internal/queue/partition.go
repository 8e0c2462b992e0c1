// Package queue keeps topics and their messages in Redis. It is the only package that
// issues Redis commands; the guarantees live in its Lua scripts, one file each.
package queue

import "strconv"

// MaxMessages is the most messages that one script call takes.
const MaxMessages = 1000

// Partition is one partition of a topic, as publishers see it. It is safe for
// concurrent use.
type Partition struct {
	store   *Store
	topic   string
	number  int
	names   names
	callers callers // of Cancel and Reschedule
}

func newPartition(store *Store, topic string, number int) *Partition {
	return &Partition{store: store, topic: topic, number: number, names: newNames(store.prefix, topic, number)}
}

// channel is where scripts announce that something in the partition is due earlier than
// before. It names the database, which Pub/Sub knows nothing of.
func (p *Partition) channel() string {
	return string(p.names) + ":wake:" + strconv.Itoa(p.store.db)
}
