package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// Message is a message to store.
type Message struct {
	ID string // from IDs; includes the traits
	script.Traits
	Delay time.Duration // from now, by Redis's clock; zero or less: due at once
	At    int64         // instead of Delay, unless 0: when it is due, in ms by Redis's clock
	Body  []byte

	// Used by publishers, and not stored.
	Name         string     // for errors
	PartitionKey string     // chooses the partition of a message without a Key; empty: any
	Duplicates   Duplicates // what to do if the Key is in use; the same in all of a Batch
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

// Batch is a batch of Publish calls for Push. Each call is stored whole or not at all.
type Batch struct {
	Publisher  string // unique to one publisher
	Number     int64  // higher than in any earlier batch; the same to send a batch again
	Duplicates Duplicates
	Window     time.Duration // for how long the keys are in use at least; 0: as long as their messages exist
	Calls      [][]Message   // MaxMessages messages at most; an empty call stores nothing, but counts in Duplicate.Call

	// Replicas, if above 0, is how many replicas must have the batch. If fewer have it
	// within ReplicaTimeout, Push returns a *ReplicationError.
	Replicas       int
	ReplicaTimeout time.Duration

	// Timeout, unless 0, limits the time of one attempt, not counting ReplicaTimeout; see script.Call.
	Timeout time.Duration

	// Repeatable, unless nil, is set if a copy of the batch may run after Push has returned.
	Repeatable *atomic.Bool
}

// Duplicate is a message that is not stored because its key is in use. With RejectDuplicates, its call is not stored either.
type Duplicate struct {
	Call    int // index in Batch.Calls
	Message int // index in the call
}

// ErrStalePublisher says that Redis has recorded a different batch with this number, or a later
// batch: the publisher's memory was set back, for example by a snapshot of a virtual machine, or
// two publishers have the same name. The remedy is a new name.
var ErrStalePublisher = script.Permanent("the publisher's batch numbers are stale")

// Push stores a batch. A batch that is sent again under its number is stored once, with the same result: with RejectDuplicates the
// first duplicate of each call that is not stored, with IgnoreDuplicates all duplicates. Duplicates are also returned with a
// *ReplicationError. Of all other errors, only a script.NotStoredError proves that nothing is stored. After ErrStalePublisher, use another
// name. A publisher must send one batch at a time to a partition.
func (p *Partition) Push(ctx context.Context, b Batch) (duplicates []Duplicate, err error) {
	if b.plain() {
		stored, err := p.put(ctx, b)
		if stored || err != nil {
			return nil, err
		}
	}
	return p.push(ctx, b)
}

// put stores a batch of messages without keys, or reports that push has to store it.
func (p *Partition) put(ctx context.Context, b Batch) (stored bool, err error) {
	p.makePutKeys.Do(func() { p.putKeys = p.Keys(putScript, "") })
	reply, err := p.storeBatch(ctx, putScript, p.putKeys, p.putArgs(b), b)
	if err != nil {
		if shortfall := (*script.ReplicationError)(nil); !errors.As(err, &shortfall) {
			return false, err
		}
	}
	switch how := reply.Text(); {
	case how == "push": // it changed nothing, so it does not matter what the replicas have
		return false, reply.End()
	case how != "stored":
		reply.Fail("a put is %q", how)
	}
	if failed := reply.End(); failed != nil {
		return false, failed
	}
	return true, err
}

// storeBatch calls a script that stores a batch. The first argument is the publisher.
func (p *Partition) storeBatch(ctx context.Context, s *script.Script, keys []string, args []any, b Batch) (script.Reply, error) {
	call := p.Call(s, keys, args)
	call.Replicas, call.ReplicaTimeout, call.Timeout = b.Replicas, b.ReplicaTimeout, b.Timeout
	if b.Repeatable == nil {
		return p.Client().Run(ctx, call)
	}
	name := &script.Written{Text: b.Publisher}
	args[0] = name
	reply, err := p.Client().Run(ctx, call)
	if err != nil || !name.Once() {
		b.Repeatable.Store(true)
	}
	return reply, err
}

// Outcome finds out whether a batch is stored, after an error other than a script.NotStoredError. If it is stored, duplicates are those of Push,
// perhaps with a *ReplicationError. If it is not stored, no copy of it that may still arrive will be stored, so its messages may be
// sent again in batches with higher numbers. After any other error, the outcome is unknown and Outcome may be called again; after
// ErrStalePublisher, it stays unknown.
func (p *Partition) Outcome(ctx context.Context, b Batch) (stored bool, duplicates []Duplicate, err error) {
	how, duplicates, err := p.outcome(ctx, b, b.Number, b.first())
	switch how {
	case "stored":
		return true, duplicates, err
	case "barred": // the replicas need not have that
		return false, nil, nil
	case "later":
		return false, nil, ErrStalePublisher
	default:
		return false, nil, err
	}
}

// Reopen is Outcome for a publisher that sends a batch again until it is stored, after a script.NotStoredError. It accepts a stored batch
// with another first message, because ErrStalePublisher may have no other cause. If the batch has failed, it may be sent again
// under its number, which Push otherwise refuses.
func (p *Partition) Reopen(ctx context.Context, b Batch) (stored bool, duplicates []Duplicate, err error) {
	how, duplicates, err := p.outcome(ctx, b, b.Number-1, "")
	return how == "stored", duplicates, err
}

// outcome calls the script. If the batch is not stored, batches up to last are refused from now on.
func (p *Partition) outcome(ctx context.Context, b Batch, last int64, first string) (how string, duplicates []Duplicate, err error) {
	reply, err := p.storeBatch(ctx, outcomeScript, p.Keys(outcomeScript, ""), []any{b.Publisher, b.Number, last, first}, b)
	if shortfall := (*script.ReplicationError)(nil); err != nil && !errors.As(err, &shortfall) {
		return "", nil, err
	}
	how, duplicates = reply.Text(), b.duplicates(&reply)
	if failed := reply.End(); failed != nil {
		return "", nil, failed
	}
	return how, duplicates, err
}

// first returns the first id of the batch.
func (b Batch) first() string {
	for _, call := range b.Calls {
		if len(call) > 0 {
			return call[0].ID
		}
	}
	return ""
}

// DeleteCallerRecords removes the records of the calls of Cancel and Reschedule that were made through
// this Topic, except if a copy of a call may still run.
func (t *Topic) DeleteCallerRecords(ctx context.Context) error {
	return t.EachIn(ctx, 0, t.opened(), func(ctx context.Context, p *Partition) error {
		if names := p.changes.over(); len(names) > 0 {
			return p.DeleteRecords(ctx, names)
		}
		return nil
	})
}

// Push stores a batch in a partition; see Partition.Push.
func (t *Topic) Push(ctx context.Context, partition int, b Batch) (duplicates []Duplicate, err error) {
	return t.Partition(partition).Push(ctx, b)
}

// Outcome finds out whether a batch is stored; see Partition.Outcome.
func (t *Topic) Outcome(ctx context.Context, partition int, b Batch) (stored bool, duplicates []Duplicate, err error) {
	return t.Partition(partition).Outcome(ctx, b)
}

// DeleteRecords removes records of publishers from a partition; see Partition.DeleteRecords.
func (t *Topic) DeleteRecords(ctx context.Context, partition int, names []string) error {
	return t.Partition(partition).DeleteRecords(ctx, names)
}

// DeleteRecords removes the records of publishers, which must not publish any more. If a copy of one of
// their batches runs later, it is stored again.
func (p *Partition) DeleteRecords(ctx context.Context, names []string) error {
	keys := p.Keys(deleteRecordsScript, "")
	return p.Client().RunMany(ctx, []script.Call{p.Call(deleteRecordsScript, keys, script.Strings(names))})[0].Err
}

func (p *Partition) push(ctx context.Context, b Batch) (duplicates []Duplicate, err error) {
	reply, err := p.storeBatch(ctx, pushScript, p.Keys(pushScript, ""), p.pushArgs(b), b)
	var shortfall *script.ReplicationError
	switch {
	case errors.As(err, &shortfall):
	case redis.HasErrorPrefix(err, "STALE"):
		return nil, fmt.Errorf("%w: %w", ErrStalePublisher, err)
	case err != nil:
		return nil, err
	}
	duplicates = b.duplicates(&reply)
	if failed := reply.End(); failed != nil {
		return nil, failed
	}
	return duplicates, err
}

// duplicates reads the result of Push. A call that is empty now may have been sent with a message before.
func (b Batch) duplicates(reply *script.Reply) (list []Duplicate) {
	for reply.More() {
		call, message := reply.Count(), reply.Count()
		if call < 1 || call > len(b.Calls) || message < 1 || message > max(1, len(b.Calls[call-1])) {
			reply.Fail("the duplicate is message %d of call %d", message, call)
			break
		}
		list = append(list, Duplicate{Call: call - 1, Message: message - 1})
	}
	return list
}

// plain reports whether no message of the batch has a key, and the publisher can have a record.
func (b Batch) plain() bool {
	if b.Number <= 1 {
		return false
	}
	for _, call := range b.Calls {
		for i := range call {
			if id := call[i].ID; len(id) > script.IDLength && script.TraitsOf(id).Key != "" {
				return false
			}
		}
	}
	return true
}

// messages returns the number of messages in the batch.
func (b Batch) messages() int {
	n := 0
	for _, call := range b.Calls {
		n += len(call)
	}
	return n
}

// due returns the due time as an argument of the scripts. A pointer to the delay needs no allocation.
func (m *Message) due(delay *int64) any {
	if m.At == 0 {
		return delay
	}
	return "@" + strconv.FormatInt(m.At, 10)
}

func (p *Partition) putArgs(b Batch) []any {
	type run struct {
		count, delay int64
		first        *Message
	}
	messages := b.messages()
	runs := make([]run, 0, 1)
	args := append(make([]any, 0, 6+2*messages), b.Publisher, b.Number, p.Channel(), messages)
	for _, call := range b.Calls {
		for i := range call {
			args = append(args, &call[i].ID, call[i].Body)
			delay := script.Milliseconds(call[i].Delay)
			if last := len(runs) - 1; last >= 0 && runs[last].delay == delay && runs[last].first.At == call[i].At {
				runs[last].count++
			} else {
				runs = append(runs, run{1, delay, &call[i]})
			}
		}
	}
	for i := range runs {
		args = append(args, &runs[i].count, runs[i].first.due(&runs[i].delay))
	}
	return args
}

func (p *Partition) pushArgs(b Batch) []any {
	messages := b.messages()
	delays := make([]int64, 0, messages) // in ms
	args := append(make([]any, 0, 5+len(b.Calls)+3*messages),
		b.Publisher, b.Number, string(b.Duplicates), p.Channel(), script.Milliseconds(b.Window))
	for _, call := range b.Calls {
		args = append(args, len(call))
		for i := range call {
			delays = append(delays, script.Milliseconds(call[i].Delay))
			args = append(args, &call[i].ID, call[i].due(&delays[len(delays)-1]), call[i].Body)
		}
	}
	return args
}

// without returns the names except one.
func without(names []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
}
