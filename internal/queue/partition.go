// Package queue keeps topics and their messages in Redis. It is the only package that
// issues Redis commands; the guarantees live in its Lua scripts, one file each.
package queue

import "strconv"

// MaxMessages is how many messages one script call takes at most.
const MaxMessages = 1000

// Partition is one partition of a topic, as publishers see it. It is safe for
// concurrent use.
type Partition struct {
	store   *Store
	topic   string
	number  int
	names   names
	wake    string   // see channel
	putKeys []string // KEYS of what is called most
	callers callers  // of Cancel and Reschedule
	clock   clock
}

func newPartition(store *Store, topic string, number int) *Partition {
	n := newNames(store.prefix, topic, number)
	return &Partition{
		store: store, topic: topic, number: number, names: n,
		wake: string(n) + ":wake:" + strconv.Itoa(store.db), putKeys: putScript.keys(n, "", nil),
	}
}

// Number is the partition's number, from 0.
func (p *Partition) Number() int { return p.number }

// channel is where scripts announce that a message in the partition is due earlier than
// all others. It names the database, since databases share Pub/Sub.
func (p *Partition) channel() string { return p.wake }
