// Package relay adds delays to the publisher of any broker.
//
// A Publisher passes messages without a delay to the broker, its target, and stores the others in Redis. A Relay, in
// any number of processes, publishes those to the target when they are due. Consumers stay as they are.
//
//	publisher, err := relay.NewPublisher(relay.PublisherConfig{Target: target, Delayed: delayed})
//	r, err := relay.New(relay.Config{Client: client, Target: target, Topics: topics}, logger)
//	go r.Run(ctx)
//
// docs/use/relay.md has examples for several brokers, and describes failures.
package relay

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// Publisher publishes due messages to its target, and stores the others for a Relay. It is safe for concurrent use if
// its target is.
type Publisher struct {
	config PublisherConfig

	now    func() time.Time // the clock
	mu     sync.Mutex
	topics map[string]time.Time // guarded by mu; when the group of the relay was registered
	close  sync.Once
	err    error // of Close
}

const (
	// registerEvery is how often a publisher registers the relay's group, in case the topic was deleted or Redis has
	// lost its data.
	registerEvery = 5 * time.Second

	// maxTopics limits how many topics a publisher remembers.
	maxTopics = 1 << 14
)

var (
	_ message.Publisher      = (*Publisher)(nil)
	_ redisdelay.Canceler    = (*Publisher)(nil)
	_ redisdelay.Rescheduler = (*Publisher)(nil)
)

// NewPublisher returns a Publisher. It does no I/O. The error is a *redisdelay.ConfigError.
func NewPublisher(config PublisherConfig) (*Publisher, error) {
	config.setDefaults()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	return &Publisher{config: config, now: time.Now, topics: map[string]time.Time{}}, nil
}

// Publish stores the messages with a delay with one call of Delayed, in a topic of the same name, and then publishes
// the others with one call of the target. Messages of each kind keep their order.
//
// If Delayed fails, nothing was sent to the target, except that a *redisdelay.ReplicationError does not stop the call.
// If the target fails after messages were stored, the error is a *redisdelay.PartialPublishError that wraps the
// target's error. Other errors are those of redisdelay.Publisher.Publish, redisdelay.Subscriber.Subscribe (because it
// registers the relay's group) and the target.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	var due, delayed kind
	for i, msg := range messages {
		remaining, err := p.config.Delayed.ApplyDelay(topic, msg)
		switch {
		case err != nil:
			return err
		case remaining > 0:
			delayed.add(i, msg)
		default:
			due.add(i, msg)
		}
	}
	stored := p.store(topic, delayed.messages)
	if stored != nil && !complete(stored) {
		return partialError(stored, len(messages), delayed, due)
	}
	if len(due.messages) == 0 {
		return stored
	}
	err := p.config.Target.Publish(topic, due.messages...)
	switch {
	case err == nil:
		return stored
	case len(delayed.messages) == 0:
		return err
	}
	return &redisdelay.PartialPublishError{
		Stored: len(delayed.messages), Total: len(messages), Missing: due.indexes, Err: both(err, stored),
	}
}

// complete reports whether all messages are stored in spite of an error: replicas lack them.
func complete(err error) bool {
	var partial *redisdelay.PartialPublishError // may wrap the other one
	var shortfall *redisdelay.ReplicationError
	return !errors.As(err, &partial) && errors.As(err, &shortfall)
}

// both joins the target's error with that of storing, if there is one.
func both(target, stored error) error {
	if stored == nil {
		return target
	}
	return errors.Join(target, stored)
}

// kind is the messages of a call that have a delay, or those that have none.
type kind struct {
	messages []*message.Message
	indexes  []int // in the call
}

func (k *kind) add(index int, msg *message.Message) {
	k.messages, k.indexes = append(k.messages, msg), append(k.indexes, index)
}

// store stores messages with a delay.
func (p *Publisher) store(topic string, messages []*message.Message) error {
	if len(messages) == 0 {
		return nil
	}
	if err := p.register(messages[0].Context(), topic); err != nil {
		return err
	}
	return p.config.Delayed.Publish(topic, messages...)
}

// register registers the relay's group before the first message, which would otherwise be removed
// when the other groups are done with it. It does so again with the next message after registerEvery.
func (p *Publisher) register(ctx context.Context, topic string) error {
	now := p.now()
	p.mu.Lock()
	registered, known := p.topics[topic]
	p.mu.Unlock()
	if known && now.Sub(registered) < registerEvery {
		return nil
	}
	if err := p.config.Delayed.RegisterGroup(ctx, topic, p.config.ConsumerGroup); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.topics) >= maxTopics { // the groups are registered again
		clear(p.topics)
	}
	p.topics[topic] = now
	return nil
}

// partialError is the error of a call whose messages with a delay could not all be stored.
func partialError(err error, total int, delayed, due kind) error {
	var partial *redisdelay.PartialPublishError
	if !errors.As(err, &partial) {
		return err
	}
	missing := append([]int{}, due.indexes...)
	for _, i := range partial.Missing {
		missing = append(missing, delayed.indexes[i])
	}
	slices.Sort(missing)
	return &redisdelay.PartialPublishError{Stored: partial.Stored, Total: total, Missing: missing, Err: partial.Err}
}

// Cancel cancels the message that holds a key, as redisdelay.Publisher.Cancel does. If the relay has published it, the
// error is redisdelay.ErrMessageNotFound. If it is in delivery to the relay's group, the relay may be publishing it.
func (p *Publisher) Cancel(ctx context.Context, topic, key string) (redisdelay.Status, error) {
	return p.config.Delayed.Cancel(ctx, topic, key)
}

// Reschedule gives the message that holds a key a new due time, as redisdelay.Publisher.Reschedule does. If the relay
// has published it, the error is redisdelay.ErrMessageNotFound.
func (p *Publisher) Reschedule(ctx context.Context, topic, key string, to delay.Delay) (redisdelay.Status, error) {
	return p.config.Delayed.Reschedule(ctx, topic, key, to)
}

// Close closes Delayed and then Target. Every call returns the same error.
func (p *Publisher) Close() error {
	p.close.Do(func() { p.err = errors.Join(p.config.Delayed.Close(), p.config.Target.Close()) })
	return p.err
}
