package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/outage"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// The errors of a call, besides those of Redis.
var (
	ErrClosed         = errors.New("the publisher is closed")
	ErrDuplicate      = errors.New("the key is in use: its message is waiting or being handled, or its deduplication window lasts")
	ErrOutcomeUnknown = queue.ErrOutcomeUnknown
)

// PartialError says that only some of a call's messages are stored.
type PartialError struct {
	Stored  int // of the Total messages
	Total   int
	Missing []int // indexes of those that are not stored or, with ErrOutcomeUnknown, may not be
	Err     error
}

func (e *PartialError) Error() string {
	return fmt.Sprintf("only %d of %d messages are stored: %v", e.Stored, e.Total, e.Err)
}

func (e *PartialError) Unwrap() error { return e.Err }

// forgetAfter is how long a destination counts as failing after its last failure, once others
// work: perhaps nothing is published to it any more.
const forgetAfter = time.Minute

// Config configures a Publisher.
type Config struct {
	Open       func(topic string) Topic // does no I/O
	Partitions int                      // the minimum number for each topic published to
	Window     time.Duration            // how long keys stay in use at least
	Observer   observe.Observer

	// Replicas, if above 0, is how many replicas must have a message within
	// ReplicaTimeout; else Publish returns a *script.ReplicationError.
	Replicas       int
	ReplicaTimeout time.Duration

	MaxPending int // messages of PublishAsync calls that are under way; 0 for no limit
	// Panicked is called after a panic of the observer, or of a function given to OnDone, that no
	// caller would see; nil to end the program.
	Panicked func(value any, stack []byte)
}

// Topic is a topic in Redis. See queue.Topic. Cancel and Reschedule end with their context, also if Redis does not answer.
type Topic interface {
	EnsureListed(ctx context.Context) error
	RaisePartitions(ctx context.Context, wanted int) (partitions int, err error)
	EndExpired(ctx context.Context) ([]queue.Ended, error)
	Push(ctx context.Context, partition int, b queue.Batch) (duplicates []queue.Duplicate, err error)
	// Outcome makes the outcome of a batch certain.
	Outcome(ctx context.Context, partition int, b queue.Batch) (stored bool, duplicates []queue.Duplicate, err error)
	Cancel(ctx context.Context, key string) (queue.Status, error)
	Reschedule(ctx context.Context, key string, delay time.Duration) (queue.Status, error)
	// DeleteRecords removes the records of publishers that have ended.
	DeleteRecords(ctx context.Context, partition int, publishers []string) error
	// DeleteCallerRecords removes the records of Cancel and Reschedule.
	DeleteCallerRecords(ctx context.Context) error
	WhyNoAnswer() error
}

var _ Topic = (*queue.Topic)(nil)

// InRedis opens the topics of a store.
func InRedis(store *queue.Store) (open func(topic string) Topic) {
	return func(topic string) Topic { return store.Topic(topic) }
}

// Message is a message to publish. Publish gives it its ID.
type Message = queue.Message

// Publisher stores messages. It is safe for concurrent use.
type Publisher struct {
	observer   observe.Observer
	ids        *script.IDs
	outages    *outage.State
	topics     *topics
	lanes      *lanes
	background *background   // the calls to Redis that lanes does not make
	next       atomic.Uint64 // chooses the partition of messages without a key
	closed     atomic.Bool
}

// New returns a Publisher.
func New(config Config) *Publisher {
	p := &Publisher{observer: config.Observer, ids: script.NewIDs(), background: newBackground()}
	p.outages = outage.New(config.Observer, forgetAfter)
	p.topics = newTopics(config, p.background, p.outages)
	p.lanes = newLanes(config, p.topics, p.ids, p.outages)
	return p
}

// Publish stores messages. It returns when they are stored, when they certainly cannot be,
// when ctx ends or at the deadline. Messages with the same key go to one partition, in
// their order. Those without a key go to one partition together, a different one for each
// call. Up to 500 messages and 4 MiB for one partition are stored whole or not at all.
//
// With ErrOutcomeUnknown the messages may be stored, with a *PartialError some are, and with
// a *script.ReplicationError all are. With any other error, none is.
func (p *Publisher) Publish(ctx context.Context, deadline time.Time, topic string, messages []Message) error {
	if p.closed.Load() {
		return ErrClosed
	}
	if len(messages) == 0 {
		return nil
	}
	start := time.Now()
	ignored, err := p.store(ctx, deadline, topic, messages)
	err = publishError(topic, err)
	if p.observer.Published != nil {
		p.observer.Published(observe.Published{
			Topic: topic, Messages: len(messages), Ignored: ignored, Took: time.Since(start), Err: err,
		})
	}
	return err
}

// publishError adds the topic to an error; it returns nil for nil.
func publishError(topic string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("redisdelay: publish to %q: %w", topic, err)
}

// share is the messages of a call that go to one partition.
type share struct {
	partition int
	indexes   []int // of the messages in the call; nil: all of them
	messages  []Message
}

// store stores the messages of a call in the partitions of their topic. ignored are the keys of duplicates that were dropped.
func (p *Publisher) store(ctx context.Context, deadline time.Time, topic string, messages []Message) (ignored []string, err error) {
	p.assignIDs(messages)
	partitions, err := p.topics.partitions(ctx, deadline, topic)
	if err != nil {
		return nil, fmt.Errorf("not stored: %w", err)
	}
	if err := p.lanes.begin(); err != nil {
		return nil, err
	}
	defer p.lanes.end()
	shares := p.distribute(messages, partitions)
	if len(shares) == 1 {
		stored, ignored, err := p.storeShare(ctx, deadline, topic, shares[0])
		if err == nil {
			return ignored, nil
		}
		return ignored, sharesError(shares, []int{stored}, []error{err})
	}
	stored, dropped, errs := make([]int, len(shares)), make([][]string, len(shares)), make([]error, len(shares))
	var storing sync.WaitGroup
	for i := range shares {
		storing.Go(func() { stored[i], dropped[i], errs[i] = p.storeShare(ctx, deadline, topic, shares[i]) })
	}
	storing.Wait()
	return slices.Concat(dropped...), sharesError(shares, stored, errs)
}

// assignIDs gives messages ids, which sort in publishing order.
func (p *Publisher) assignIDs(messages []Message) {
	now := time.Now()
	for i := range messages {
		messages[i].ID = p.ids.Next(now, messages[i].Traits)
	}
}

// distribute chooses partitions for messages.
func (p *Publisher) distribute(messages []Message, partitions int) []share {
	turn := int(p.next.Add(1) % uint64(partitions))
	if partitions == 1 || !slices.ContainsFunc(messages, func(m Message) bool { return chooser(m) != "" }) {
		return []share{{partition: turn, messages: messages}}
	}
	var shares []share
	for i, m := range messages {
		partition := turn
		if key := chooser(m); key != "" {
			partition = queue.PartitionOf(key, partitions)
		}
		at := slices.IndexFunc(shares, func(s share) bool { return s.partition == partition })
		if at < 0 {
			at = len(shares)
			shares = append(shares, share{partition: partition})
		}
		shares[at].indexes = append(shares[at].indexes, i)
		shares[at].messages = append(shares[at].messages, m)
	}
	return shares
}

// chooser is the key that chooses a message's partition. The ordering key comes first, since its messages have
// to meet in one partition; then the message key, for duplicates.
func chooser(m Message) string { return cmp.Or(m.OrderingKey, m.Key, m.PartitionKey) }

// storeShare stores a share, in pieces if it is large, and returns how many of its
// messages are stored or were dropped as duplicates, and the keys of the latter.
func (p *Publisher) storeShare(ctx context.Context, deadline time.Time, topic string, s share) (count int, ignored []string, err error) {
	for _, piece := range split(s.messages) {
		dropped, failed := p.lanes.store(ctx, deadline, destination{topic: topic, partition: s.partition}, piece)
		if err == nil {
			err = failed
		}
		if !isStored(failed) {
			return count, ignored, failed
		}
		count += len(piece)
		ignored = append(ignored, dropped...)
	}
	return count, ignored, err
}

// split cuts messages into pieces that fit a batch. A batch does the same with all duplicates.
func split(messages []Message) [][]Message {
	var pieces [][]Message
	start, bytes := 0, 0
	for i, m := range messages {
		bytes += len(m.Body)
		if i > start && (i-start == maxMessages || bytes > maxBytes || m.Duplicates != messages[start].Duplicates) {
			pieces = append(pieces, messages[start:i])
			start, bytes = i, len(m.Body)
		}
	}
	if start < len(messages) {
		pieces = append(pieces, messages[start:])
	}
	return pieces
}

// sharesError returns the error of a call. stored is how many messages of each share are
// stored, counted from its first.
func sharesError(shares []share, stored []int, errs []error) error {
	err := errors.Join(errs...)
	switch {
	case err == nil:
		return nil
	case len(errs) == 1:
		err = errs[0]
	}
	var partial PartialError
	var failed []error // without the ReplicationError of a share that is stored: it would say that all are
	for i, s := range shares {
		if stored[i] < len(s.messages) {
			failed = append(failed, errs[i])
		}
		partial.Stored += stored[i]
		partial.Total += len(s.messages)
		for n := stored[i]; n < len(s.messages); n++ {
			if s.indexes == nil {
				partial.Missing = append(partial.Missing, n)
			} else {
				partial.Missing = append(partial.Missing, s.indexes[n])
			}
		}
	}
	if partial.Stored == 0 || len(partial.Missing) == 0 {
		return err
	}
	partial.Err = errors.Join(failed...)
	slices.Sort(partial.Missing)
	return &partial
}

// Pending is how many messages of PublishAsync calls are under way.
func (p *Publisher) Pending() int { return p.lanes.pending.size() }

// Flush waits until the PublishAsync calls under way have ended and their outcomes are reported, or until
// ctx ends. It returns the first error of a call since the last Flush that did not end with ctx.
func (p *Publisher) Flush(ctx context.Context) error { return p.lanes.pending.flush(ctx) }

// TakeError returns the first error of a PublishAsync call since the last Flush or TakeError.
func (p *Publisher) TakeError() error { return p.lanes.pending.takeError() }

// FailAsync returns a PublishAsync call that has failed before it began, and keeps its error for Flush.
func (p *Publisher) FailAsync(err error) *Future {
	f := &Future{pending: p.lanes.pending, stop: func() {}}
	p.lanes.pending.refuse(f, err)
	return f
}

// Do makes another call that Close waits for, or returns ErrClosed.
func (p *Publisher) Do(call func() error) error {
	if err := p.lanes.begin(); err != nil {
		return err
	}
	defer p.lanes.end()
	return call()
}

// Closed reports whether Close was called.
func (p *Publisher) Closed() bool { return p.closed.Load() }

// Close waits until the calls under way have ended, or ctx has. Later calls fail with
// ErrClosed.
func (p *Publisher) Close(ctx context.Context) error {
	p.closed.Store(true)
	err := p.lanes.close(ctx)
	if err == nil {
		p.deleteRecords(ctx)
	}
	err = errors.Join(err, p.background.close(ctx))
	p.outages.Close()
	return err
}
