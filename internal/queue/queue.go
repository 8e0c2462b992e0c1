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

// ErrNotFound says that no message holds the key.
var ErrNotFound = errors.New("no waiting message has this key")

var errGroupsKeepChanging = errors.New("consumer groups keep changing")

// Queue is the publishing side of one topic partition. It is safe for
// concurrent use.
type Queue struct {
	client redis.UniversalClient
	part   partition
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

// Cancel takes back the message that holds a key, from all groups. It returns
// ErrNotFound when there is none.
func (q *Queue) Cancel(ctx context.Context, key string) error {
	p := q.part
	return q.withHolder(ctx, key, func(id string, groups []string) ([]any, error) {
		keys := []string{p.scheduled(), p.messages(), p.groups(), p.refs(), p.keys()}
		for _, g := range groups {
			keys = append(keys, p.queue(g), p.unack(g), p.attempts(g), p.changed(g))
		}
		return run(ctx, q.client, p, cancelScript, keys, append([]any{key, id}, anys(groups)...))
	})
}

// Reschedule makes the waiting message that holds a key due in delay ms. It
// returns ErrNotFound when there is none, or none that waits.
func (q *Queue) Reschedule(ctx context.Context, key string, delay int64) error {
	p := q.part
	return q.withHolder(ctx, key, func(id string, groups []string) ([]any, error) {
		keys := []string{p.scheduled(), p.groups(), p.keys()}
		for _, g := range groups {
			keys = append(keys, p.queue(g))
		}
		args := append([]any{key, id, delay, p.channel()}, anys(groups)...)
		return run(ctx, q.client, p, rescheduleScript, keys, args)
	})
}

// withHolder calls a script with the id of the message that holds a key, and with
// the groups, whose keys it needs, until it and Redis agree on which there are.
func (q *Queue) withHolder(ctx context.Context, key string, call func(id string, groups []string) ([]any, error)) error {
	id, err := q.client.HGet(ctx, q.part.keys(), key).Result()
	if errors.Is(err, redis.Nil) {
		return ErrNotFound
	}
	var groups []string
	if err == nil {
		groups, err = q.client.SMembers(ctx, q.part.groups()).Result()
	}
	if err != nil {
		return explain(ctx, q.client, q.part, []string{q.part.keys(), q.part.groups()}, err)
	}
	for range 5 {
		reply, err := call(id, groups)
		if err != nil {
			return err
		}
		switch list, err := stringsOf(reply); {
		case err != nil:
			return err
		case len(list) == 0:
			return fmt.Errorf("%w: empty", errReply)
		case list[0] == "none":
			return ErrNotFound
		case list[0] != "groups":
			return nil
		default:
			groups = list[1:]
		}
	}
	return errGroupsKeepChanging
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
