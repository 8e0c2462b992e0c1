// Package publish stores the messages of Publish calls, and finds them by their keys.
//
// Concurrent calls share script calls: while a batch for a topic partition is under way (or,
// with Redis far away, a few), calls for that partition collect in the next batch. No call
// waits for others to join, and calls stay independent: each is stored whole or not at all and
// has its own result.
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
	ErrClosed         = errors.New("the publisher is closed")
	ErrDuplicate      = errors.New("the key is in use: its message is waiting or being handled, or its deduplication window lasts")
	ErrOutcomeUnknown = errors.New("outcome unknown: the messages may be stored")
)

// Config configures a Publisher.
type Config struct {
	Open       func(topic string) Topic // does no I/O
	Partitions int                      // the minimum number for each topic published to
	Duplicates queue.Duplicates
	Window     time.Duration // for how long the keys are taken at least
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
	EndExpired(ctx context.Context) ([]queue.Ended, error)
	Push(ctx context.Context, partition int, b queue.Batch) (rejected []queue.Duplicate, err error)
	Cancel(ctx context.Context, key string) (queue.Standing, error)
	Reschedule(ctx context.Context, key string, delay time.Duration) (queue.Standing, error)
	// Unrecord removes the records of publishers that have ended.
	Unrecord(ctx context.Context, partition int, publishers []string) error
	// UnrecordCallers removes the records of Cancel and Reschedule.
	UnrecordCallers(ctx context.Context) error
	Silence() error
}

// Message is a message to publish.
type Message struct {
	Name  string // for errors; it is not stored
	Key   string // the message key; empty: none
	Delay time.Duration
	Body  []byte

	// PartitionKey chooses the partition of a message without a Key; empty: any partition.
	PartitionKey string
}

// Publisher stores messages. It is safe for concurrent use.
type Publisher struct {
	observer   observe.Observer
	ids        *queue.IDs
	topics     *topics
	lanes      *lanes
	background *background   // the calls to Redis that lanes does not make
	turn       atomic.Uint64 // chooses the partition of messages without a key
	closed     atomic.Bool
}

// New returns a Publisher.
func New(config Config) *Publisher {
	p := &Publisher{observer: config.Observer, ids: queue.NewIDs(), background: newBackground()}
	outage := newOutage(config.Observer)
	p.topics = newTopics(config.Open, config.Partitions, p.background, outage)
	p.lanes = newLanes(p.topics, p.ids, outage, queue.Batch{
		Duplicates: config.Duplicates, Window: config.Window, Replicas: config.Replicas, ReplicaTimeout: config.ReplicaTimeout,
	})
	return p
}

// Publish stores messages. It returns when they are stored, when they certainly cannot be,
// when ctx ends or at the deadline. Messages with the same key go to one partition, in
// their order. Those without a key go to one partition together, a different one for each
// call. Up to 500 messages and 4 MiB for one partition are stored whole or not at all.
//
// With ErrOutcomeUnknown the messages may be stored, with a *PartialError some are, and with
// a *queue.ReplicationError all are. With any other error, none is.
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
	err := p.lanes.close(ctx)
	if err == nil {
		p.unrecord(ctx)
	}
	return errors.Join(err, p.background.close(ctx))
}
