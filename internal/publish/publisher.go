// Package publish stores the messages of Publish calls, and finds them by their keys.
//
// Concurrent calls share script calls: while a batch for a topic partition is under way,
// calls for that partition gather, and what has gathered is the next batch. No call waits
// for company, and calls stay independent: each is stored whole or not at all and has its
// own result.
package publish

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// Why a call fails, apart from what Redis says.
var (
	ErrClosed         = errors.New("redisdelay: publisher is closed")
	ErrDuplicate      = errors.New("the key is in use: a message with it waits or is being handled")
	ErrOutcomeUnknown = errors.New("outcome unknown: the messages may be stored")
)

// Config configures a Publisher.
type Config struct {
	Open       func(topic string) Topic // does no I/O
	Partitions int                      // the least number that each topic published to has
	Duplicates queue.Duplicates
	Observer   observe.Observer

	// Replicas, if above 0, is how many replicas must have a message within
	// ReplicaTimeout; else Publish returns a *queue.ReplicationError.
	Replicas       int
	ReplicaTimeout time.Duration
}

// Topic is a topic in Redis. See queue.Topic and queue.Partition.
type Topic interface {
	Enlist(ctx context.Context) error
	Raise(ctx context.Context, least int) (partitions int, err error)
	Push(ctx context.Context, partition int, b queue.Batch) (rejected []queue.Duplicate, err error)
	Cancel(ctx context.Context, key string) error
	Reschedule(ctx context.Context, key string, delay time.Duration) error
	Silence() error
}

// Message is a message to publish.
type Message struct {
	Name  string // for errors; it is not stored
	Key   string // to find it by; empty: none
	Delay time.Duration
	Body  []byte

	// PartitionKey chooses the partition of a message without a Key; empty: any will do.
	PartitionKey string
}

// Publisher stores messages. It is safe for concurrent use.
type Publisher struct {
	observer   observe.Observer
	ids        *queue.IDs
	topics     *topics
	lanes      *lanes
	background *background   // the calls to Redis that lanes does not make
	turn       atomic.Uint64 // of the partitions, for messages without a key
	closed     atomic.Bool
}

// New returns a Publisher.
func New(config Config) *Publisher {
	p := &Publisher{observer: config.Observer, ids: queue.NewIDs(), background: newBackground()}
	outage := newOutage(config.Observer)
	p.topics = newTopics(config.Open, config.Partitions, p.background, outage)
	p.lanes = newLanes(p.topics, p.ids, outage, queue.Batch{
		Duplicates: config.Duplicates, Replicas: config.Replicas, ReplicaTimeout: config.ReplicaTimeout,
	})
	return p
}

// Publish stores messages and returns when they are stored, certain to fail, ctx ends or
// the deadline has come. Those with the same key go to one partition, in their order; those
// without all go to another, calls taking turns. What goes to one partition, 500 messages
// and 4 MiB at most, is stored whole or not at all.
//
// Messages may be stored if the error is ErrOutcomeUnknown, some are if it is a
// *PartialError, and all are if it is a *queue.ReplicationError. With any other, none is.
func (p *Publisher) Publish(ctx context.Context, deadline time.Time, topic string, messages []Message) error {
	if p.closed.Load() {
		return ErrClosed
	}
	if len(messages) == 0 {
		return nil
	}
	start := time.Now()
	err := p.store(ctx, deadline, topic, messages)
	if err != nil {
		err = fmt.Errorf("redisdelay: publish to %q: %w", topic, err)
	}
	if p.observer.Published != nil {
		p.observer.Published(observe.Published{
			Topic: topic, Messages: len(messages), Took: time.Since(start), Err: err,
		})
	}
	return err
}

// Closed tells whether Close was called.
func (p *Publisher) Closed() bool { return p.closed.Load() }

// Close waits until the calls under way have ended, or ctx has. Later calls fail with
// ErrClosed.
func (p *Publisher) Close(ctx context.Context) error {
	p.closed.Store(true)
	return errors.Join(p.lanes.close(ctx), p.background.close(ctx))
}
