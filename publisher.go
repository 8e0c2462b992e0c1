// Package redisdelay is a Watermill Pub/Sub on Redis whose messages can be
// delayed: each waits in Redis until it is due and is then delivered to every
// consumer group, at least once.
//
// A message is delayed by Watermill's own metadata (package components/delay):
//
//	msg.SetContext(delay.WithContext(ctx, delay.For(30*time.Minute)))
//	err := publisher.Publish("orders.close", msg)
//
// The keys and scripts are described in docs/protocol.md.
package redisdelay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/internal/publish"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

var (
	// ErrPublisherClosed is returned by a Publisher after Close.
	ErrPublisherClosed = publish.ErrClosed

	// ErrEmptyTopic is returned for a topic without a name.
	ErrEmptyTopic = errors.New("redisdelay: topic is empty")

	// ErrNilMessage is returned by Publish when one of the messages is nil.
	ErrNilMessage = errors.New("redisdelay: message is nil")

	// ErrMessageTooLarge is returned by Publish for a message whose encoding is
	// larger than PublisherConfig.MaxMessageBytes.
	ErrMessageTooLarge = errors.New("message is too large")

	// ErrOutcomeUnknown is returned by Publish when it does not know whether the messages
	// are stored: no answer came in time, or Redis has refused what the client sent again
	// after an answer was lost. Publishing them again may store them twice, unless they
	// carry a key. Errors that are not this one say what is so: with a *ReplicationError
	// all messages are stored, with a *PartialPublishError some, with any other none.
	ErrOutcomeUnknown = publish.ErrOutcomeUnknown

	// ErrStalePublisher is returned by Publish when another batch was stored under the
	// number of this one, or a later one: the publisher's memory was set back, as when a
	// virtual machine is restored from a snapshot. Nothing is stored, unless the error is
	// ErrOutcomeUnknown as well. Later calls are not affected.
	ErrStalePublisher = queue.ErrStalePublisher

	// ErrServerTooOld is returned by Publish, SubscribeInitialize and Subscribe when the
	// server is older than Redis 7.0.
	ErrServerTooOld = queue.ErrServerTooOld
)

// PartialPublishError is returned by a Publish call that is not stored at once,
// since it is large or its messages go to several partitions, when only a part of it
// is stored. Its fields name the messages that are not and tell why.
type PartialPublishError = publish.PartialError

// ReplicationError is returned by Publish when fewer replicas than
// PublisherConfig.WaitReplicas had the messages in time, or Redis refused to wait for
// them (Err). The messages are stored, and may be lost if the master fails soon.
type ReplicationError = queue.ReplicationError

// KeyTypeError is returned when a key in Redis that belongs to this library holds
// a value of another type. Its fields name the key, its type and the type wanted.
type KeyTypeError = queue.KeyTypeError

// Publisher publishes messages that may be delayed. It is safe for concurrent use.
type Publisher struct {
	config  PublisherConfig
	client  *queue.Client
	ids     *queue.IDs
	calls   *publish.Calls // all but those of batcher
	topics  *publish.Topics
	batcher *publish.Batcher
	sender  *publish.Sender
	delayed message.Publisher // adds delay metadata, then calls store
	logger  watermill.LoggerAdapter

	checked atomic.Bool // whether warn was called
	close   sync.Once
	done    chan struct{} // closed by Close once nothing is under way
	err     error         // of Close; set before done is closed
}

var _ message.Publisher = (*Publisher)(nil)

// NewPublisher returns a Publisher. It does no I/O. The error is a *ConfigError.
// A nil logger means none.
func NewPublisher(config PublisherConfig, logger watermill.LoggerAdapter) (*Publisher, error) {
	config.setDefaults()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	client, err := queue.NewClient(config.Client)
	if err != nil {
		return nil, err // which Validate has found
	}
	p := &Publisher{
		config: config, client: client, logger: logger,
		ids: queue.NewIDs(), calls: publish.NewCalls(), done: make(chan struct{}),
	}
	outage := publish.NewOutage(p.outageBegan, p.outageEnded)
	p.topics = publish.NewTopics(p.open, config.Partitions, p.calls, outage)
	p.batcher = publish.New(p.push, queue.Batch{
		Duplicates:     queue.Duplicates(config.OnDuplicate),
		Replicas:       config.WaitReplicas,
		ReplicaTimeout: config.WaitTimeout,
	}, p.newName, outage)
	p.sender = publish.NewSender(p.topics, p.batcher)
	p.delayed, err = delay.NewPublisher(storeFunc(p.store), guardDelays(config.Delay))
	if err != nil {
		return nil, fmt.Errorf("redisdelay: %w", err)
	}
	return p, nil
}

// Publish stores messages, each due after its delay. It returns when they are
// stored, and rides out connection errors and failovers until the context of a
// message ends or PublishTimeout has passed. Calls of many goroutines share round
// trips.
//
// delay.For is exact. delay.Until is turned into a duration by the publisher's clock, the
// only host's clock that matters: as far as it is wrong, messages are early or late.
//
// A call is stored whole or not at all, up to 500 messages and 4 MiB, unless keys
// (PartitionKey, SetKey) send its messages to several partitions; a *PartialPublishError
// tells when only a part of a call was stored.
//
// Errors: ErrPublisherClosed, ErrEmptyTopic, ErrNilMessage, *DelayError,
// ErrInvalidKey, ErrMessageTooLarge, ErrDuplicateMessage, ErrOutcomeUnknown,
// ErrStalePublisher, ErrServerTooOld, *ReplicationError, *KeyTypeError, *PanicError, the
// error of the message's context, of the Marshaler, or of Redis. Nothing is stored unless
// the error is ErrOutcomeUnknown, a *PartialPublishError or a *ReplicationError.
//
// A message whose own context has ended is refused, unless a handler publishes what a
// Subscriber has delivered and its lease is held: middlewares such as Watermill's Timeout
// leave an ended context on the message. Then the context of the delivery counts.
//
// A message that a subscriber has delivered, published again by its handler, is
// due at once unless its delay metadata has changed since: that delay is over.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	if topic == "" {
		return ErrEmptyTopic
	}
	for _, msg := range messages {
		if msg == nil {
			return ErrNilMessage
		}
		if msg.Metadata == nil {
			msg.Metadata = message.Metadata{} // where the delay goes
		}
	}
	return p.delayed.Publish(topic, messages...)
}

// storeFunc makes the part of Publish that follows delay.Publisher a Publisher.
type storeFunc func(topic string, messages ...*message.Message) error

func (f storeFunc) Publish(topic string, messages ...*message.Message) error {
	return f(topic, messages...)
}

func (storeFunc) Close() error { return nil }

// store stores messages that have their delay metadata.
func (p *Publisher) store(topic string, messages ...*message.Message) error {
	select {
	case <-p.done:
		return ErrPublisherClosed
	default:
	}
	encoded, keys, err := p.encode(topic, messages)
	if err != nil {
		return fmt.Errorf("redisdelay: publish to %q: %w", topic, err)
	}
	ctx, stop := contextOf(messages)
	defer stop()
	deadline := time.Now().Add(p.config.PublishTimeout)
	if err := p.sender.Send(ctx, deadline, topic, encoded, keys); err != nil {
		return fmt.Errorf("redisdelay: publish to %q: %w", topic, err)
	}
	if !p.checked.Load() && p.checked.CompareAndSwap(false, true) {
		warn(p.client, p.logger)
	}
	if p.logger != (watermill.NopLogger{}) { // to make the fields takes half as long as to encode a message
		p.logger.Trace("Published messages", watermill.LogFields{"topic": topic, "messages": len(messages)})
	}
	return nil
}

// errMayLose is the error that warnings are logged with: they are about lost messages.
var errMayLose = errors.New("messages may be lost")

// warn logs settings of the server that lose messages, once, after the server was looked
// at.
func warn(client *queue.Client, logger watermill.LoggerAdapter) {
	for _, warning := range client.Warnings() {
		logger.Error("Warning: "+warning, errMayLose, nil)
	}
}

func (p *Publisher) outageBegan(to publish.Destination, err error) {
	p.logger.Error("Publishing fails, trying again", err, watermill.LogFields{
		"topic": to.Topic, "publish_timeout": p.config.PublishTimeout,
	})
}

func (p *Publisher) outageEnded(after time.Duration) {
	p.logger.Info("Publishing works again", watermill.LogFields{"after": after})
}

// encode returns the messages to store and the keys that choose their partitions, nil
// if none has one.
func (p *Publisher) encode(
	topic string, messages []*message.Message,
) (encoded []queue.Message, keys []string, err error) {
	defer recovered(&err)
	now := time.Now()
	encoded = make([]queue.Message, len(messages))
	for i, msg := range messages {
		m, err := p.encodeOne(topic, msg, now)
		if err != nil {
			return nil, nil, fmt.Errorf("message %q: %w", msg.UUID, err)
		}
		encoded[i] = m
		if key := p.partitionKey(topic, msg, m.ID); key != "" {
			if keys == nil {
				keys = make([]string, len(messages))
			}
			keys[i] = key
		}
	}
	for i := range encoded { // none is used up by a call that fails
		encoded[i].ID = p.ids.Next(now, encoded[i].ID)
	}
	return encoded, keys, nil
}

// encodeOne encodes a message; its ID is the message key, to be completed.
func (p *Publisher) encodeOne(topic string, msg *message.Message, now time.Time) (queue.Message, error) {
	remaining, err := pendingHeaders(msg.Metadata).remaining(now)
	if err != nil {
		return queue.Message{}, err
	}
	key, keyed := msg.Metadata[KeyMetadata]
	if delivery, _ := DeliveryFromContext(msg.Context()); keyed && key != "" && key == delivery.key && msg.UUID == delivery.uuid {
		key, keyed = "", false
	}
	if keyed {
		if err := validateKey(key); err != nil {
			return queue.Message{}, err
		}
	}
	body, err := p.config.Marshaler.Marshal(topic, msg)
	if err != nil {
		return queue.Message{}, fmt.Errorf("marshal: %w", err)
	}
	if len(body) > p.config.MaxMessageBytes {
		return queue.Message{}, fmt.Errorf("%w: %d bytes, limit %d", ErrMessageTooLarge, len(body), p.config.MaxMessageBytes)
	}
	return queue.Message{ID: key, Delay: remaining, Body: body, Name: msg.UUID}, nil
}

// partitionKey is what chooses a message's partition. A message key goes first: all
// messages with it must meet.
func (p *Publisher) partitionKey(topic string, msg *message.Message, key string) string {
	if key == "" && p.config.PartitionKey != nil {
		return p.config.PartitionKey(topic, msg)
	}
	return key
}

// contextOf ends when the context of any of the messages does. Those of one call tend
// to share one, which then is the result.
func contextOf(messages []*message.Message) (ctx context.Context, stop func()) {
	if len(messages) == 0 {
		return context.Background(), func() {}
	}
	first := contextFor(messages[0])
	last, stops := first.Done(), []func() bool{}
	ctx, cancel := first, func(error) {}
	for _, msg := range messages[1:] {
		other := contextFor(msg)
		if other.Done() == last {
			continue
		}
		last = other.Done()
		if len(stops) == 0 {
			ctx, cancel = context.WithCancelCause(first)
		}
		if other.Err() != nil {
			cancel(context.Cause(other))
		}
		stops = append(stops, context.AfterFunc(other, func() { cancel(context.Cause(other)) }))
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
	}
}

// contextFor is the context that a message is published under: its own, or, if that has
// ended before its delivery has, the delivery's. It is a middleware that ended it then,
// which is over, and not the caller.
func contextFor(msg *message.Message) context.Context {
	ctx := msg.Context()
	if ctx.Err() == nil {
		return ctx
	}
	if d, delivered := DeliveryFromContext(ctx); delivered && d.held.Err() == nil {
		return d.held
	}
	return ctx
}

// push stores a batch in Redis.
func (p *Publisher) push(ctx context.Context, to publish.Destination, b queue.Batch) ([]queue.Duplicate, error) {
	return p.topics.Topic(to.Topic).Partition(to.Partition).Push(ctx, b)
}

func (p *Publisher) open(topic string) *queue.Topic {
	return queue.NewTopic(p.client, p.config.Prefix, topic)
}

func (p *Publisher) newName() string { return p.ids.Next(time.Now(), "") }

// Close waits for the calls under way, PublishTimeout at most. Later calls return
// ErrPublisherClosed. It leaves the Redis client open, may be called more than
// once and from many goroutines, and returns the same to all. Its error says that calls
// to Redis still hang; they end with the client's own timeouts.
func (p *Publisher) Close() error {
	p.close.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), p.config.PublishTimeout)
		defer cancel()
		if err := errors.Join(p.batcher.Close(ctx), p.calls.Close(ctx)); err != nil {
			p.err = fmt.Errorf("redisdelay: close publisher: %w", err)
		}
		close(p.done)
	})
	return p.err
}
