package redisdelay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/delays"
	"github.com/redisdelay/watermill-redisdelay/internal/publish"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// Publisher publishes messages that may be delayed. It is safe for concurrent use.
type Publisher struct {
	config      PublisherConfig
	store       *queue.Store
	publisher   *publish.Publisher
	delayer     message.Publisher // only adds delay metadata
	cloneBodies bool              // what the Marshaler returns may share memory with the message
	logger      watermill.LoggerAdapter

	checked atomic.Bool // whether warn was called
	close   sync.Once
	err     error // of Close
}

var _ message.Publisher = (*Publisher)(nil)

// NewPublisher returns a Publisher. It does no I/O. The error is a *ConfigError. A nil logger logs nothing.
func NewPublisher(config PublisherConfig, logger watermill.LoggerAdapter) (*Publisher, error) {
	config.setDefaults()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config.Observer = publicErrors(config.Observer)
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	observer := observe.Join(config.Observer, logging(logger))
	store := queue.NewStore(config.Client, config.Prefix, observer)
	delayer, err := delay.NewPublisher(discard{}, guardDelays(config.Delay))
	if err != nil {
		return nil, fmt.Errorf("redisdelay: %w", err)
	}
	p := &Publisher{
		config: config, store: store, delayer: delayer, cloneBodies: !returnsOwnMemory(config.Marshaler), logger: logger,
	}
	p.publisher = publish.New(publish.Config{
		Open:           publish.InRedis(store),
		Partitions:     config.Partitions,
		Window:         config.DeduplicationWindow,
		Replicas:       config.WaitReplicas,
		ReplicaTimeout: config.WaitTimeout,
		Observer:       observer,
		MaxPending:     config.MaxPending,
		Panicked:       p.panicked,
	})
	return p, nil
}

// Config returns the configuration that is in force, with its defaults. Its Observer wraps the given one, and turns
// internal errors into those of this package. It is safe for concurrent use.
func (p *Publisher) Config() PublisherConfig { return p.config }

// Publish stores messages, each due after its delay, and returns when they are stored. It retries until the context of
// a message ends or PublishTimeout has passed. Consecutive calls are stored in their order; concurrent calls share
// round trips and must not share a message.
//
// The delay of a message is that of delay.Message, of its context (delay.WithContext) or of PublisherConfig.Delay.
// Without one, or if it is 0 or less, the message is due at once. Make the delay right before Publish: then the message
// is due to the millisecond, otherwise up to a second late. delay.Until, and a delay made on another host, depend on
// the publisher's clock. If Publish has to retry, the message is due later by the time that the retries took. Publish
// writes a delay of the context or the config into the metadata of the message.
//
// A call of up to 500 messages and 4 MiB is stored whole or not at all, unless its messages go to several partitions
// ([SetOrderingKey], [SetKey], PartitionKey) or have different duplicate policies ([SetOnDuplicate]).
//
// Errors after which messages may be stored (docs/use/basics.md has a table):
//
//   - [ErrOutcomeUnknown]: some or all may be.
//   - [*PartialPublishError]: some are.
//   - [*ReplicationError]: all are.
//
// With any other error, nothing is stored:
//
//   - [ErrDuplicateMessage]: a key is in use.
//   - [ErrStalePublisher]: call Publish again.
//   - [ErrLimitTooLow]: Publish would add partitions beyond a limit of a group.
//   - [ErrPublisherClosed], or the error of a context that has ended.
//   - For an invalid message: [ErrNilMessage], [ErrMessageTooLarge], [*DelayError], [ErrInvalidKey],
//     [ErrInvalidOrderingKey], [ErrInvalidExpiration], [ErrInvalidDuplicatePolicy], or the error of the Marshaler or of
//     Delay.DefaultDelayGenerator.
//   - [*PanicError]: one of your functions has panicked.
//
// If the context of a delivered message has ended because of a middleware such as Watermill's Timeout, Publish uses the
// context of the delivery instead.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	if err := prepare(topic, messages); err != nil {
		return err
	}
	return p.put(topic, messages)
}

// prepare checks the arguments of a call, and replaces nil Metadata, which cannot hold a delay.
func prepare(topic string, messages []*message.Message) error {
	if topic == "" {
		return ErrEmptyTopic
	}
	for _, msg := range messages {
		if msg == nil {
			return ErrNilMessage
		}
		if msg.Metadata == nil {
			msg.Metadata = message.Metadata{}
		}
	}
	return nil
}

// put stores messages.
func (p *Publisher) put(topic string, messages []*message.Message) error {
	if p.publisher.Closed() {
		return ErrPublisherClosed
	}
	deadline := time.Now().Add(p.config.PublishTimeout)
	encoded, err := p.encode(topic, messages)
	if err != nil {
		return wrap(err, "publish to %q", topic)
	}
	ctx, stop := contextOf(messages)
	defer stop()
	if err := p.publisher.Publish(ctx, deadline, topic, encoded); err != nil {
		return public(err)
	}
	p.warnOnce(messages)
	return nil
}

// warnOnce logs what is wrong with the server, once it has stored a message.
func (p *Publisher) warnOnce(stored []*message.Message) {
	if len(stored) > 0 && !p.checked.Load() && p.checked.CompareAndSwap(false, true) {
		warn(p.store, p.logger)
	}
}

// encode returns the messages to store.
func (p *Publisher) encode(topic string, messages []*message.Message) (encoded []publish.Message, err error) {
	defer recovered(&err)
	now := time.Now()
	encoded = make([]publish.Message, len(messages))
	for i, msg := range messages {
		encoded[i], err = p.encodeOne(topic, msg, now)
		if err != nil {
			return nil, fmt.Errorf("message %q: %w", msg.UUID, err)
		}
		if p.cloneBodies { // a call may go on after it has returned
			encoded[i].Body = bytes.Clone(encoded[i].Body)
		}
	}
	return encoded, nil
}

func (p *Publisher) encodeOne(topic string, msg *message.Message, now time.Time) (publish.Message, error) {
	delayed, err := p.withDelay(topic, msg)
	if err != nil {
		return publish.Message{}, err
	}
	remaining, err := delays.Pending(delayed.Metadata).Remaining(now)
	if err != nil {
		return publish.Message{}, err
	}
	traits, err := traitsOf(delayed)
	if err != nil {
		return publish.Message{}, err
	}
	if _, err := Expiration(delayed); err != nil {
		return publish.Message{}, err
	}
	onDuplicate, err := onDuplicateOf(delayed, p.config.OnDuplicate)
	if err != nil {
		return publish.Message{}, err
	}
	body, err := p.config.Marshaler.Marshal(topic, storedCopy(msg, delayed))
	if err != nil {
		return publish.Message{}, fmt.Errorf("marshal: %w", err)
	}
	if len(body) > p.config.MaxMessageBytes {
		return publish.Message{}, fmt.Errorf("%w: %d bytes, limit %d", ErrMessageTooLarge, len(body), p.config.MaxMessageBytes)
	}
	m := publish.Message{
		Name: msg.UUID, Traits: traits, Delay: remaining, Body: body, Duplicates: queue.Duplicates(onDuplicate),
	}
	if traits.OrderingKey == "" && traits.Key == "" && p.config.PartitionKey != nil {
		m.PartitionKey = p.config.PartitionKey(topic, delayed)
	}
	return m, nil
}

// withDelay returns a message with the delay of its context or of the generator, if it has no delay metadata. Watermill's
// publisher would overwrite a time that stands alone. A message that its handler publishes again gets the delay in a copy:
// its own delay metadata say when it is redelivered after a Nack.
func (p *Publisher) withDelay(topic string, msg *message.Message) (*message.Message, error) {
	if delays.Of(msg.Metadata) != (delays.Metadata{}) {
		return msg, nil
	}
	if _, again := republished(msg); again {
		msg = msg.CopyWithContext()
	}
	return msg, p.delayer.Publish(topic, msg)
}

// traitsOf are what the scripts have to know of a message.
func traitsOf(msg *message.Message) (t script.Traits, err error) {
	if t.Key, err = keyOf(msg); err != nil {
		return t, err
	}
	t.OrderingKey, err = orderingKeyOf(msg)
	return t, err
}

// storedCopy returns the message to store. If a handler publishes its own message again, the copy has no
// expiration, unless the handler has set another one. If the handler has given it a new delay, such as that of
// DelayOnError inside a poison queue, the copy marks it as made while handling, and not by the publisher: see delays.AsMade.
// Only the copy has the mark, so this call still counts the delay.
func storedCopy(msg, delayed *message.Message) *message.Message {
	delivery, again := republished(msg)
	if !again {
		return delayed
	}
	stored := delayed.CopyWithContext()
	if stored.Metadata[ExpirationMetadata] == delivery.expiration {
		delete(stored.Metadata, ExpirationMetadata)
	}
	if after := delays.Pending(msg.Metadata).After; after != "" {
		stored.Metadata.Set(delay.DelayedForKey, delays.AsMade(after))
	}
	return stored
}

// contextOf returns a context that ends when the context of any of the messages does. If
// they share one, as the messages of a call mostly do, it returns that one.
func contextOf(messages []*message.Message) (ctx context.Context, stop func()) {
	if len(messages) == 0 {
		return context.Background(), func() {}
	}
	first := publishContext(messages[0].Context())
	if len(messages) == 1 {
		return first, func() {}
	}
	last, stops := first.Done(), []func() bool{}
	ctx, cancel := first, func(error) {}
	for _, msg := range messages[1:] {
		other := publishContext(msg.Context())
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

// publishContext is the context to publish under: the message's own, or, if that has ended, that of
// its delivery. While the consumer holds the message, an ended context on it is a
// middleware's, not the caller's.
func publishContext(ctx context.Context) context.Context {
	if ctx.Err() != nil {
		if d, delivered := DeliveryFromContext(ctx); delivered {
			return d.held
		}
	}
	return ctx
}

// Close waits up to PublishTimeout for the current calls, including those of PublishAsync. Later calls, and calls that
// do not know yet how many partitions their topic has, return ErrPublisherClosed. It leaves the Redis client open.
// Every Close returns the same error; it means that calls to Redis still hang, until the client's own timeouts.
func (p *Publisher) Close() error {
	p.close.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), p.config.PublishTimeout)
		defer cancel()
		err := p.publisher.Close(ctx)
		if err == nil {
			err = p.store.WaitIdle(ctx)
		}
		if err != nil {
			p.err = wrap(err, "close publisher")
		}
		p.logUnflushed()
	})
	return p.err
}

// ApplyDelay gives a message the delay that Publish would give it (that of its context, or the default of PublisherConfig.Delay,
// unless its metadata have one) and returns what remains of it. If that is 0 or less, Publish would make the message due at once.
// ApplyDelay does no I/O. A message that its handler publishes again stays as it is.
//
// The error is ErrEmptyTopic, ErrNilMessage, a *DelayError, or that of Delay.DefaultDelayGenerator.
func (p *Publisher) ApplyDelay(topic string, msg *message.Message) (time.Duration, error) {
	if err := prepare(topic, []*message.Message{msg}); err != nil {
		return 0, err
	}
	delayed, err := p.withDelay(topic, msg)
	if err != nil {
		return 0, public(err)
	}
	remaining, err := delays.Pending(delayed.Metadata).Remaining(time.Now())
	if err != nil {
		return 0, wrap(err, "message %q", msg.UUID)
	}
	return remaining, nil
}

// RegisterGroup registers a consumer group in a topic, as Subscriber.SubscribeInitialize does, so that the group gets
// every message that is published afterwards. A registered group stays as it is. An empty group is
// DefaultConsumerGroup. It retries through connection errors until ctx ends or PublishTimeout has passed. The ctx of a
// delivered message counts for as long as the consumer holds the message, as in Publish.
//
// Errors: ErrEmptyTopic, ErrPublisherClosed, ErrTooManyGroups, ErrGroupRetired, ErrServerTooOld, ErrProtocolMismatch,
// *WrongTypeError, a *ConfigError for Broadcast, which is the name of no group, or that of ctx or of Redis. The group may be
// registered all the same.
func (p *Publisher) RegisterGroup(ctx context.Context, topic, group string) error {
	switch {
	case topic == "":
		return ErrEmptyTopic
	case group == Broadcast:
		return &ConfigError{"group", "is Broadcast, which is a group of each Subscribe"}
	case group == "":
		group = DefaultConsumerGroup
	}
	return p.publisher.Do(func() error { return p.registerGroup(ctx, topic, group) })
}

func (p *Publisher) registerGroup(ctx context.Context, topic, group string) error {
	ctx, cancel := context.WithTimeout(publishContext(ctx), p.config.PublishTimeout)
	defer cancel()
	known := p.store.Topic(topic)
	membership := known.Membership(group, queue.GroupOptions{})
	pause := backoff.Backoff{Min: 50 * time.Millisecond, Max: time.Second}
	for {
		err := known.RequireListedNow(ctx) // else Partitions relies on what this process has seen
		if err == nil || errors.Is(err, ErrTopicNotFound) {
			_, err = membership.Partitions(ctx)
		}
		if err == nil {
			return nil
		}
		certain := errors.Is(err, ErrTooManyGroups) || errors.Is(err, ErrGroupRetired) || !script.Transient(err)
		if !certain && !pause.Wait(ctx) {
			err, certain = fmt.Errorf("%w: %w", script.EndOf(ctx), err), true
		}
		if certain {
			return wrap(err, "register group %q for %q", group, topic)
		}
	}
}

// guardDelays turns a panic of the delay generator into an error.
func guardDelays(config delay.PublisherConfig) delay.PublisherConfig {
	if generate := config.DefaultDelayGenerator; generate != nil {
		config.DefaultDelayGenerator = func(params delay.DefaultDelayGeneratorParams) (d delay.Delay, err error) {
			defer recovered(&err)
			return generate(params)
		}
	}
	return config
}

// discard is the message.Publisher that delay.Publisher calls with the messages that have their delay metadata.
type discard struct{}

func (discard) Publish(string, ...*message.Message) error { return nil }

func (discard) Close() error { return nil }
