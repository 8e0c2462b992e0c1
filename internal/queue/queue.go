// Package queue keeps the messages of one topic partition in Redis. It is the
// only package that issues Redis commands; the guarantees live in its Lua
// scripts, one file each. It starts no goroutine.
package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// MaxMessages is the most messages that one script call takes.
const MaxMessages = 1000

var errGroupsKeepChanging = errors.New("consumer groups keep changing")

// Queue is the publishing side of one topic partition. It is safe for
// concurrent use.
type Queue struct {
	client  redis.UniversalClient
	part    partition
	callers callers // of Cancel and Reschedule
}

// New returns partition number of a topic. It does no I/O.
func New(client redis.UniversalClient, prefix, topic string, number int) *Queue {
	return &Queue{client: client, part: newPartition(prefix, topic, number)}
}

// Message is a message to store.
type Message struct {
	ID    string // from IDs
	Delay int64  // ms from now, by Redis's clock; zero or less: due at once
	Body  []byte
}

// Duplicates says what Push does with a message whose key is in use.
type Duplicates string

// What to do with a message whose key is in use: refuse the call it came in,
// drop the new message, or drop the old one if it is not due yet.
const (
	RejectDuplicates  Duplicates = "reject"
	IgnoreDuplicates  Duplicates = "ignore"
	ReplaceDuplicates Duplicates = "replace"
)

// Batch is what Push stores: a few Publish calls, each whole or not at all.
type Batch struct {
	Publisher  string // unique to one publisher
	Number     int64  // higher than that of any batch before; the same to send a batch again
	Duplicates Duplicates
	Calls      [][]Message // MaxMessages messages at most

	// Replicas, if above 0, is how many replicas must have the batch within
	// ReplicaTimeout; else Push returns a *ReplicationError.
	Replicas       int
	ReplicaTimeout time.Duration
}

// ReplicationError says that messages are stored, but that fewer replicas than
// wanted have acknowledged them in time.
type ReplicationError struct {
	Want int // replicas
	Got  int
}

func (e *ReplicationError) Error() string {
	return fmt.Sprintf("stored, but replicated to %d replicas in time, want %d", e.Got, e.Want)
}

// Push stores a batch. Sent again under the same number it is stored once and
// gives the same result: the indexes of calls refused because of a key in use, which
// come with a *ReplicationError, too. A publisher must send one batch at a time to a
// partition.
func (q *Queue) Push(ctx context.Context, b Batch) (refused []int, err error) {
	keys := []string{q.part.scheduled(), q.part.messages(), q.part.publishers(), q.part.keys()}
	messages := 0
	for _, call := range b.Calls {
		messages += len(call)
	}
	args := append(make([]any, 0, 4+len(b.Calls)+3*messages), b.Publisher, b.Number, string(b.Duplicates), q.part.channel())
	for _, call := range b.Calls {
		args = append(args, len(call))
		for i := range call { // pointers need no memory of their own
			args = append(args, &call[i].ID, &call[i].Delay, call[i].Body)
		}
	}
	reply, err := q.push(ctx, b, keys, args)
	var shortfall *ReplicationError
	if err != nil && !errors.As(err, &shortfall) {
		return nil, err
	}
	for _, index := range reply {
		n, ok := index.(int64)
		if !ok || n < 1 || int(n) > len(b.Calls) {
			return nil, fmt.Errorf("%w: refused call %v of %d", errReply, index, len(b.Calls))
		}
		refused = append(refused, int(n)-1)
	}
	return refused, err
}

func (q *Queue) push(ctx context.Context, b Batch, keys []string, args []any) ([]any, error) {
	if b.Replicas == 0 {
		return run(ctx, q.client, q.part, pushScript, keys, args)
	}
	reply, got, err := runAndWait(ctx, q.client, q.part, pushScript, keys, args, b.Replicas, b.ReplicaTimeout)
	if err == nil && got < b.Replicas {
		err = &ReplicationError{Want: b.Replicas, Got: got}
	}
	return reply, err
}

func anys(values []string) []any {
	list := make([]any, len(values))
	for i, v := range values {
		list[i] = v
	}
	return list
}

// without returns the names but one.
func without(names []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
}
