package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Message is a message to store.
type Message struct {
	ID    string        // from IDs; it ends with the key
	Key   string        // message key; empty if it has none
	Delay time.Duration // from now, by Redis's clock; zero or less: due at once
	Body  []byte

	// For publishers; these are not stored.
	Name         string // for errors
	PartitionKey string // chooses the partition of a message without a Key; empty: any
}

// Duplicates says what Push does with a message whose key is in use.
type Duplicates string

// What to do with a message whose key is in use: reject the call that has it, drop the
// new message, or drop the old one if it is not due yet.
const (
	RejectDuplicates  Duplicates = "reject"
	IgnoreDuplicates  Duplicates = "ignore"
	ReplaceDuplicates Duplicates = "replace"
)

// Batch is what Push stores: a few Publish calls, each whole or not at all.
type Batch struct {
	Publisher  string // unique to one publisher
	Number     int64  // higher than in any earlier batch; the same to send a batch again
	Duplicates Duplicates
	Window     time.Duration // for how long the keys are taken at least; 0: as long as their messages
	Calls      [][]Message   // not empty; MaxMessages messages at most

	// Replicas, if above 0, is how many replicas must have the batch. If fewer have it
	// within ReplicaTimeout, Push returns a *ReplicationError.
	Replicas       int
	ReplicaTimeout time.Duration

	// Repeatable, unless nil, is set if a copy of the batch may run after Push has returned.
	Repeatable *atomic.Bool
}

// Duplicate is a message whose key is in use, so its call is not stored.
type Duplicate struct {
	Call    int // index in Batch.Calls
	Message int // index in the call
}

// ReplicationError says that messages are stored, but fewer replicas than wanted
// acknowledged them in time.
type ReplicationError struct {
	Want int // replicas
	Got  int
	Err  error // why Redis did not wait for any; nil if it did
}

func (e *ReplicationError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("stored, but perhaps not replicated: WAIT was refused: %v", e.Err)
	}
	return fmt.Sprintf("stored, but replicated to %d replicas in time, want %d", e.Got, e.Want)
}

func (e *ReplicationError) Unwrap() error { return e.Err }

// Push stores a batch. A batch sent again under its number is stored once and gives the
// same result: the calls rejected because a key is in use. They are also returned with a
// *ReplicationError. Of all other errors, only those that are Refused prove that nothing
// is stored. After ErrStalePublisher, use another name. A publisher must send one batch
// at a time to a partition.
func (p *Partition) Push(ctx context.Context, b Batch) (rejected []Duplicate, err error) {
	if b.plain() {
		stored, err := p.put(ctx, b)
		if stored || err != nil {
			return nil, err
		}
	}
	return p.push(ctx, b)
}

// put stores a batch of messages without keys, or leaves it to push.
func (p *Partition) put(ctx context.Context, b Batch) (stored bool, err error) {
	reply, err := p.keep(ctx, putScript, p.putKeys, p.putArgs(b), b)
	if err != nil {
		if shortfall := (*ReplicationError)(nil); !errors.As(err, &shortfall) {
			return false, err
		}
	}
	if len(reply) != 1 {
		return false, fmt.Errorf("%w: a put of %v", errReply, reply)
	}
	switch reply[0] {
	case "stored":
		return true, err
	case "push": // it changed nothing, so it does not matter what the replicas have
		return false, nil
	default:
		return false, fmt.Errorf("%w: a put of %v", errReply, reply)
	}
}

// keep calls a script that stores a batch. The first argument is the publisher.
func (p *Partition) keep(ctx context.Context, s *script, keys []string, args []any, b Batch) ([]any, error) {
	call := p.call(s, keys, args)
	call.replicas, call.patience = b.Replicas, b.ReplicaTimeout
	if b.Repeatable == nil {
		return p.store.run(ctx, call)
	}
	name := &written{text: b.Publisher}
	args[0] = name
	reply, err := p.store.run(ctx, call)
	if err != nil || !name.once() {
		b.Repeatable.Store(true)
	}
	return reply, err
}

// UnrecordCallers removes what Redis remembers of the calls of Cancel and Reschedule that were
// made through this Topic, except those of which a copy may still run.
func (t *Topic) UnrecordCallers(ctx context.Context) error {
	t.mu.Lock()
	opened := len(t.partitions)
	t.mu.Unlock()
	return t.visit(ctx, 0, opened, func(ctx context.Context, p *Partition) error {
		if names := p.callers.over(); len(names) > 0 {
			return p.Unrecord(ctx, names)
		}
		return nil
	})
}

// Push stores a batch in a partition; see Partition.Push.
func (t *Topic) Push(ctx context.Context, partition int, b Batch) (rejected []Duplicate, err error) {
	return t.Partition(partition).Push(ctx, b)
}

// Unrecord removes records of publishers from a partition; see Partition.Unrecord.
func (t *Topic) Unrecord(ctx context.Context, partition int, names []string) error {
	return t.Partition(partition).Unrecord(ctx, names)
}

// Unrecord removes what Redis remembers of the last batches of publishers, which must not
// publish any more. If a copy of a batch of theirs runs later, it is stored again.
func (p *Partition) Unrecord(ctx context.Context, names []string) error {
	keys := unrecordScript.keys(p.names, "", nil)
	return p.store.runMany(ctx, []scriptCall{p.call(unrecordScript, keys, anys(names))})[0].err
}

func (p *Partition) push(ctx context.Context, b Batch) (rejected []Duplicate, err error) {
	reply, err := p.keep(ctx, pushScript, pushScript.keys(p.names, "", nil), p.pushArgs(b), b)
	var shortfall *ReplicationError
	switch {
	case errors.As(err, &shortfall):
	case redis.HasErrorPrefix(err, "STALE"):
		return nil, fmt.Errorf("%w: %w", ErrStalePublisher, err)
	case err != nil:
		return nil, err
	}
	if len(reply)%2 != 0 {
		return nil, fmt.Errorf("%w: a push with %d values", errReply, len(reply))
	}
	for i := 0; i < len(reply); i += 2 {
		call, ok := reply[i].(int64)
		message, ok2 := reply[i+1].(int64)
		if !ok || !ok2 || call < 1 || int(call) > len(b.Calls) || message < 1 || int(message) > len(b.Calls[call-1]) {
			return nil, fmt.Errorf("%w: rejected message %v of call %v", errReply, reply[i+1], reply[i])
		}
		rejected = append(rejected, Duplicate{Call: int(call) - 1, Message: int(message) - 1})
	}
	return rejected, err
}

// plain tells whether no message of the batch has a key, and the publisher can have a record.
func (b Batch) plain() bool {
	if b.Number <= 1 {
		return false
	}
	for _, call := range b.Calls {
		for i := range call {
			if len(call[i].ID) > idLength {
				return false
			}
		}
	}
	return true
}

// messages is how many messages the batch has.
func (b Batch) messages() int {
	n := 0
	for _, call := range b.Calls {
		n += len(call)
	}
	return n
}

func (p *Partition) putArgs(b Batch) []any {
	type run struct{ count, delay int64 }
	messages := b.messages()
	runs := make([]run, 0, 1)
	args := append(make([]any, 0, 6+2*messages), b.Publisher, b.Number, p.channel(), messages)
	for _, call := range b.Calls {
		for i := range call {
			args = append(args, &call[i].ID, call[i].Body)
			delay := milliseconds(call[i].Delay)
			if last := len(runs) - 1; last >= 0 && runs[last].delay == delay {
				runs[last].count++
			} else {
				runs = append(runs, run{1, delay})
			}
		}
	}
	for i := range runs {
		args = append(args, &runs[i].count, &runs[i].delay)
	}
	return args
}

func (p *Partition) pushArgs(b Batch) []any {
	messages := b.messages()
	delays := make([]int64, 0, messages) // in ms; pointers into it need no allocation
	args := append(make([]any, 0, 5+len(b.Calls)+3*messages),
		b.Publisher, b.Number, string(b.Duplicates), p.channel(), milliseconds(b.Window))
	for _, call := range b.Calls {
		args = append(args, len(call))
		for i := range call {
			delays = append(delays, milliseconds(call[i].Delay))
			args = append(args, &call[i].ID, &delays[len(delays)-1], call[i].Body)
		}
	}
	return args
}

func anys(values []string) []any {
	list := make([]any, len(values))
	for i, v := range values {
		list[i] = v
	}
	return list
}

// without returns the names except one.
func without(names []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
}
