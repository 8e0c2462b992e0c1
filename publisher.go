// Package redisdelay is a Watermill Pub/Sub on Redis whose messages can be
// delayed: each waits in Redis until it is due and is then delivered to every
// consumer group, at least once.
//
// A message is delayed by Watermill's own metadata (package components/delay):
//
//	msg.SetContext(delay.WithContext(ctx, delay.For(30*time.Minute)))
//	err := publisher.Publish("orders.close", msg)
//
// The keys and scripts are described in docs/inside/protocol.md.
package redisdelay

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/internal/publish"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// Publisher publishes messages that may be delayed. It is safe for concurrent use.
type Publisher struct {
	config    PublisherConfig
	store     *queue.Store
	publisher *publish.Publisher
	delayed   message.Publisher // adds delay metadata, then calls put
	delays    message.Publisher // adds delay metadata
	logger    watermill.LoggerAdapter

	checked atomic.Bool // whether warn was called
	close   sync.Once
	err     error // of Close
}

var _ message.Publisher = (*Publisher)(nil)

// NewPublisher returns a Publisher. It does no I/O. The error is a *ConfigError.
// A nil logger means none.
func NewPublisher(config PublisherConfig, logger watermill.LoggerAdapter) (*Publisher, error) {
	config.setDefaults()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config.Observer = publicly(config.Observer)
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	observer := observe.Join(config.Observer, logging(logger))
	store, err := queue.NewStore(config.Client, config.Prefix, observer)
	if err != nil {
		return nil, err // from Validate
	}
	p := &Publisher{config: config, store: store, logger: logger}
	p.publisher = publish.New(publish.Config{
		Open:           publish.InRedis(store),
		Partitions:     config.Partitions,
		Duplicates:     queue.Duplicates(config.OnDuplicate),
		Window:         config.DeduplicationWindow,
		Replicas:       config.WaitReplicas,
		ReplicaTimeout: config.WaitTimeout,
		Observer:       observer,
	})
	p.delayed, err = delay.NewPublisher(storeFunc(p.put), guardDelays(config.Delay))
	if err == nil {
		p.delays, err = delay.NewPublisher(storeFunc(func(string, ...*message.Message) error { return nil }), guardDelays(config.Delay))
	}
	if err != nil {
		return nil, fmt.Errorf("redisdelay: %w", err)
	}
	return p, nil
}

// Config returns the configuration that is in force, with its defaults.
func (p *Publisher) Config() PublisherConfig { return p.config }

// Publish stores messages, each due after its delay. It returns when they are
// stored, and retries through connection errors and failovers until the context of
// a message ends or PublishTimeout has passed. Calls of many goroutines share round
// trips.
//
// A delay counts from when it is made (delay.For, delay.Until): make a new one for each
// message, right before Publish. Then it is exact to the millisecond. A message published
// later may be up to a second late, since Watermill's metadata has whole seconds. Until,
// and a For made on another host, go by the publisher's clock: as far as it is wrong,
// messages are early or late.
//
// Calls that follow one another are stored in their order, unless one ends with
// ErrOutcomeUnknown: its messages may be stored late, after those of later calls, if they have
// no keys.
//
// A call of up to 500 messages and 4 MiB is stored whole or not at all, unless keys
// (PartitionKey, SetKey) send its messages to several partitions. A *PartialPublishError
// says that only some messages of a call are stored.
//
// Errors: ErrPublisherClosed, ErrEmptyTopic, ErrNilMessage, *DelayError,
// ErrInvalidKey, ErrMessageTooLarge, ErrDuplicateMessage, ErrOutcomeUnknown,
// ErrStalePublisher, ErrServerTooOld, ErrProtocolTooNew, ErrLimitTooLow,
// *ReplicationError, *KeyTypeError, *PanicError, the error of the message's context, of the
// Marshaler, or of Redis. Nothing is stored unless the error is ErrOutcomeUnknown, a
// *PartialPublishError or a *ReplicationError.
//
// A message whose own context has ended is refused, with one exception: middlewares such
// as Watermill's Timeout leave an ended context on a message. If that context comes from a
// delivery whose lease is held, the context of the delivery counts instead.
//
// A delivered message that is published again is due at once, since its delay is over,
// unless its delay metadata has changed since.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	if topic == "" {
		return ErrEmptyTopic
	}
	for _, msg := range messages {
		if msg == nil {
			return ErrNilMessage
		}
		if msg.Metadata == nil {
			msg.Metadata = message.Metadata{} // to hold the delay
		}
	}
	return p.delayed.Publish(topic, messages...)
}

// storeFunc is the message.Publisher that delay.Publisher calls.
type storeFunc func(topic string, messages ...*message.Message) error

func (f storeFunc) Publish(topic string, messages ...*message.Message) error {
	return f(topic, messages...)
}

func (storeFunc) Close() error { return nil }

// put stores messages that have their delay metadata.
func (p *Publisher) put(topic string, messages ...*message.Message) error {
	if p.publisher.Closed() {
		return ErrPublisherClosed
	}
	deadline := time.Now().Add(p.config.PublishTimeout)
	encoded, err := p.encode(topic, messages)
	if err != nil {
		return leave(err, "publish to %q", topic)
	}
	ctx, stop := contextOf(messages)
	defer stop()
	if err := p.publisher.Publish(ctx, deadline, topic, encoded); err != nil {
		return public(err)
	}
	if !p.checked.Load() && p.checked.CompareAndSwap(false, true) {
		warn(p.store, p.logger)
	}
	return nil
}

// Close waits for the calls under way, PublishTimeout at most. Later calls return
// ErrPublisherClosed. It leaves the Redis client open, may be called more than
// once and from many goroutines, and returns the same to all. An error means that calls
// to Redis still hang; they end with the client's own timeouts.
func (p *Publisher) Close() error {
	p.close.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), p.config.PublishTimeout)
		defer cancel()
		err := p.publisher.Close(ctx)
		if err == nil {
			err = p.store.Rest(ctx)
		}
		if err != nil {
			p.err = leave(err, "close publisher")
		}
	})
	return p.err
}
