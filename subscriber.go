package redisdelay

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/internal/delivery"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

var (
	// ErrSubscriberClosed is returned by a Subscriber after Stop or Close.
	ErrSubscriberClosed = errors.New("the subscriber is closed")

	// ErrLeaseLost is the cause (context.Cause) of the end of a message context if the consumer no longer holds the
	// message: another consumer may have it, it was cancelled, or its group was retired.
	ErrLeaseLost = delivery.ErrLeaseLost

	// ErrCloseTimeout is the cause of the end of a message context if the handler did not finish within CloseTimeout.
	ErrCloseTimeout = delivery.ErrCloseTimeout

	// ErrTooManyGroups is returned by Subscribe, SubscribeInitialize and RegisterGroup for a new group if the topic has 100 groups.
	ErrTooManyGroups = queue.ErrTooManyGroups

	// ErrGroupRetired is returned by Subscribe, SubscribeInitialize and RegisterGroup for a retired group
	// (Control.RetireGroup). Running subscriptions stop claiming, log it once, and continue when the group is restored.
	ErrGroupRetired = queue.ErrGroupRetired
)

// closeGrace is how much longer than CloseTimeout the end of a subscription may take.
const closeGrace = time.Second

// Subscriber delivers messages to one consumer group or, with Broadcast, to a group for each Subscribe. It is safe for
// concurrent use.
type Subscriber struct {
	config   SubscriberConfig
	observer observe.Observer // of the config, and the log
	store    *queue.Store
	logger   watermill.LoggerAdapter
	reserved reserved // groups, with Broadcast

	closing context.Context // ends when Close begins
	cancel  context.CancelFunc
	running sync.WaitGroup // subscriptions, and calls that begin one
	ending  sync.Once      // of the reserved groups, for which no Subscribe has come

	mu     sync.Mutex
	closed bool  // guarded by mu
	err    error // guarded by mu; of the first subscription that did not end in time
}

var (
	_ message.Subscriber           = (*Subscriber)(nil)
	_ message.SubscribeInitializer = (*Subscriber)(nil)
)

// NewSubscriber returns a Subscriber. It does no I/O. The error is a *ConfigError. A nil logger logs nothing.
func NewSubscriber(config SubscriberConfig, logger watermill.LoggerAdapter) (*Subscriber, error) {
	config.setDefaults()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config.Observer = publicErrors(config.Observer)
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	store := queue.NewStore(config.Client, config.Prefix, config.Observer)
	s := &Subscriber{
		config: config, observer: observe.Join(config.Observer, logging(logger)), store: store, logger: logger,
		reserved: reserved{groups: map[string][]string{}},
	}
	s.closing, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// SubscribeInitialize registers the consumer group, as Subscribe does, so that it receives the messages that become due
// before its first subscriber runs. A group with a GroupExpiry waits that long for it. With Broadcast, it registers the
// group of the next Subscribe to the topic; Close ends it if there was none. The errors are those of Subscribe.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	if err := s.begin(topic); err != nil {
		return err
	}
	defer s.running.Done()
	group := s.config.ConsumerGroup
	if s.broadcast() {
		group = s.reserved.get(topic)
	}
	_, err := s.register(context.Background(), topic, group, s.topicFor(topic, group))
	return err
}

// begin counts a call as running, so that Close ends the group that the call may register. The end of closing ends the call.
func (s *Subscriber) begin(topic string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case topic == "":
		return ErrEmptyTopic
	case s.closed:
		return ErrSubscriberClosed
	}
	s.running.Add(1)
	return nil
}

// register makes the group known, until ctx ends or Close is called.
func (s *Subscriber) register(ctx context.Context, topic, group string, subscribed subscribedTopic) (partitions int, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.closing, func() { cancel(ErrSubscriberClosed) })() //nolint:contextcheck // ctx or Close, whichever is first
	partitions, err = subscribed.Partitions(ctx)
	if err != nil && errors.Is(context.Cause(ctx), ErrSubscriberClosed) {
		err = ErrSubscriberClosed
	}
	if err != nil {
		return 0, wrap(err, "register group %q for %q", group, topic)
	}
	return partitions, nil
}

func (s *Subscriber) topicFor(topic, group string) subscribedTopic {
	options := queue.GroupOptions{Expiry: s.config.GroupExpiry, Limits: s.config.GroupLimits.inQueue()}
	return subscribedTopic{s.store.Topic(topic).Membership(group, options), s.config.PingInterval}
}

// subscribedTopic is a topic as a subscription sees it.
type subscribedTopic struct {
	*queue.Membership
	ping time.Duration
}

func (t subscribedTopic) Group(partition int) delivery.Group { return t.Membership.Group(partition) }

func (t subscribedTopic) Listen(partition int, consumer string, handler queue.HintHandler) delivery.Listener {
	return t.Membership.Group(partition).Listen(consumer, t.ping, handler)
}

// Subscribe registers the consumer group and delivers its messages until ctx ends or Stop or Close is called; nothing
// else ends a subscription. A new group receives the messages that become due from then on, and those already due that
// no group has claimed. When the subscription ends, it returns prefetched messages to the queue, waits up to
// CloseTimeout for handlers, and closes the channel. Subscriptions of the same group share its messages, also those of
// one Subscriber.
//
// The context of a message carries the values of ctx and a Delivery ([DeliveryFromContext]). It ends with the Ack or
// Nack, or with the cause ErrLeaseLost or ErrCloseTimeout. After ErrLeaseLost, an Ack or Nack counts only if the message
// has not been claimed again; after ErrCloseTimeout, it has no effect. A delay in ctx (delay.WithContext) delays what
// handlers publish with msg.Context().
//
// Subscribe does not retry, so a Router fails to start while Redis is unavailable. Errors:
//
//   - [ErrSubscriberClosed]
//   - [ErrTooManyGroups]
//   - [ErrGroupRetired]
//   - [ErrLimitTooLow]
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	subscription, err := s.subscribe(ctx, topic, 0, nil)
	if err != nil {
		return nil, err
	}
	return subscription.Messages(), nil
}

// subscribe starts a subscription, with a handle for batches of up to size, or nil to hand out single messages.
func (s *Subscriber) subscribe(
	ctx context.Context, topic string, size int, handle func(batch []*message.Message),
) (*delivery.Subscription, error) {
	if err := s.begin(topic); err != nil {
		return nil, err
	}
	defer s.running.Done()
	group, back := s.groupFor(topic)
	subscribed := s.topicFor(topic, group)
	partitions, err := s.register(ctx, topic, group, subscribed)
	if err != nil {
		back()
		return nil, err
	}
	config := s.deliveryConfig(topic, group)
	if handle != nil {
		config.MaxInFlight, config.BatchSize, config.Handle = 1, size, s.guard(config.Place, handle)
	}
	subscription := delivery.New(subscribed, config)
	warn(s.store, s.logger)
	if err := s.run(ctx, subscription, config.Place, partitions); err != nil {
		back()
		return nil, err
	}
	return subscription, nil
}

// deliveryConfig is the config of a subscription that hands out single messages.
func (s *Subscriber) deliveryConfig(topic, group string) delivery.Config {
	codec := &codec{config: &s.config, topic: topic, group: group}
	return delivery.Config{
		Decode:        codec.decode,
		Redelivery:    codec.redelivery,
		Consumer:      s.config.ConsumerName + "/" + watermill.NewULID(),
		ConsumerInfo:  func(extended []delivery.Extended) string { return consumerInfo(s.config, extended) },
		MaxInFlight:   s.config.MaxInFlight,
		Lease:         s.config.LeaseDuration,
		MaxDeliveries: s.config.MaxDeliveries,
		MaxBytes:      s.config.MaxBufferBytes,
		DropExpired:   s.config.OnExpired == DropExpired,
		PollInterval:  s.config.PollInterval,
		PingInterval:  s.config.PingInterval,
		GroupExpiry:   s.config.GroupExpiry,
		CloseTimeout:  s.config.CloseTimeout,
		Observer:      s.observer,
		Place:         observe.Place{Topic: topic, Group: group},
	}
}

// run starts a subscription that ends with ctx or Close.
func (s *Subscriber) run(
	ctx context.Context, subscription *delivery.Subscription, place observe.Place, partitions int,
) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrSubscriberClosed
	}
	s.running.Add(1) // until it has ended
	ctx, cancel := context.WithCancel(ctx)
	unlink := context.AfterFunc(s.closing, cancel) //nolint:contextcheck // ctx or Close, whichever is first
	endGroup := s.groupEnder(ctx, place)
	subscription.Start(ctx, partitions, func(err error) {
		defer s.running.Done()
		defer cancel()
		unlink()
		s.setError(err)
		endGroup()
	})
	return nil
}

// setError keeps the error of the first subscription that did not end in time: there may be any number of them.
func (s *Subscriber) setError(err error) {
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.err = cmp.Or(s.err, err)
	}
}

// groupEnder returns what ends the group of a subscription's own, once that has ended, which is after ctx.
func (s *Subscriber) groupEnder(ctx context.Context, place observe.Place) (end func()) {
	if !s.broadcast() {
		return func() {}
	}
	deadline := make(chan time.Time, 1)
	context.AfterFunc(ctx, func() { deadline <- time.Now().Add(s.config.CloseTimeout + closeGrace) })
	return func() {
		last, cancel := context.WithDeadline(context.WithoutCancel(ctx), <-deadline)
		defer cancel()
		s.endGroup(last, place.Topic, place.Group)
	}
}

// Stop ends all subscriptions, as Subscribe describes, without waiting. Call it when a service begins to shut down, so
// that other processes receive the messages, and Close at the end. It may be called again.
func (s *Subscriber) Stop() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
}

// Close ends all subscriptions, as Subscribe describes, and waits for them, at most CloseTimeout and a second. With
// Broadcast, it also ends their groups. It leaves the Redis client open, and may be called again. The error means that
// acks or returned messages did not reach Redis, or that Redis did not answer a last claim, which may have leased
// messages; those messages are delivered again when their leases end.
func (s *Subscriber) Close() error {
	end := time.Now().Add(s.config.CloseTimeout + closeGrace)
	s.Stop()
	s.running.Wait()
	s.ending.Do(func() {
		ctx, cancel := context.WithDeadline(context.Background(), end)
		defer cancel()
		for range 2 { // a call that was given up may register its group after the first time
			s.reserved.each(func(topic, group string) { s.endGroup(ctx, topic, group) })
			_ = s.store.WaitIdle(ctx) // the client's timeouts end the calls
		}
	})

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return wrap(s.err, "close subscriber")
	}
	return nil
}

// SubscribeBatches is Subscribe for work that is faster for many messages at once, such as a bulk insert. It calls
// handle with the messages that are ready, up to size (1 to 1,000), and does not wait for more. A subscription has one
// batch at a time, in order, whatever MaxInFlight is.
//
// Handle acks or nacks each message. Those that it leaves when it returns or panics are nacked. A message is settled in
// Redis once those before it in the batch are. Its context ends when the batch is settled.
//
// The errors are those of Subscribe, and a *ConfigError for an invalid size or a nil handle.
func (s *Subscriber) SubscribeBatches(
	ctx context.Context, topic string, size int, handle func(batch []*message.Message),
) error {
	switch {
	case size < 1 || size > queue.MaxMessages:
		return &ConfigError{"size", fmt.Sprintf("is %d, want 1 to %d", size, queue.MaxMessages)}
	case handle == nil:
		return &ConfigError{"handle", "is nil"}
	}
	_, err := s.subscribe(ctx, topic, size, handle)
	return err
}

// guard makes the handler of batches log its panics.
func (s *Subscriber) guard(place observe.Place, handle func(batch []*message.Message)) func(batch []*message.Message) {
	guarded := func(batch []*message.Message) (err error) {
		defer recovered(&err)
		handle(batch)
		return nil
	}
	return func(batch []*message.Message) {
		if err := guarded(batch); err != nil {
			s.logger.Error("The handler of a batch has panicked; what it has not settled is nacked", err,
				watermill.LogFields{"topic": place.Topic, "consumer_group": place.Group})
		}
	}
}

// broadcastExpiry is how long a group of a subscription's own lasts by default. It takes some
// seconds until a process notices.
const broadcastExpiry = 50 * time.Second

// broadcastGroup returns a group name that no other subscription has. The host is for people
// who read the data in Redis; it is short, since names are stored with each message.
func broadcastGroup() string {
	host, _ := os.Hostname()
	return "broadcast-" + host[:min(len(host), 32)] + "-" + strings.ToLower(rand.Text()[:16])
}

// reserved are the groups that wait for a Subscribe: SubscribeInitialize has made them, one for each topic, or a Subscribe that
// has failed.
type reserved struct {
	mu     sync.Mutex
	groups map[string][]string // guarded by mu; by topic
}

// get returns the group that waits in a topic, and makes one if there is none.
func (r *reserved) get(topic string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.groups[topic]) == 0 {
		r.groups[topic] = []string{broadcastGroup()}
	}
	return r.groups[topic][0]
}

// take returns the group that waits in a topic, or a new one, for one Subscribe.
func (r *reserved) take(topic string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting := r.groups[topic]
	switch len(waiting) {
	case 0:
		return broadcastGroup()
	case 1:
		delete(r.groups, topic)
	default:
		r.groups[topic] = waiting[1:]
	}
	return waiting[0]
}

// putBack keeps the group of a Subscribe that has failed for the next one.
func (r *reserved) putBack(topic, group string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.groups[topic] = append(r.groups[topic], group)
}

// each calls end with each group, and waits for the calls.
func (r *reserved) each(end func(topic, group string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var calls sync.WaitGroup
	for topic, groups := range r.groups {
		for _, group := range groups {
			calls.Go(func() { end(topic, group) })
		}
	}
	calls.Wait()
}

// groupFor is the group of one Subscribe to a topic; back returns it if Subscribe fails.
func (s *Subscriber) groupFor(topic string) (group string, back func()) {
	if !s.broadcast() {
		return s.config.ConsumerGroup, func() {}
	}
	group = s.reserved.take(topic)
	return group, func() { s.reserved.putBack(topic, group) }
}

func (s *Subscriber) broadcast() bool { return s.config.ConsumerGroup == Broadcast }

// endGroup ends a group of a subscription's own. If ctx ends before, it expires.
func (s *Subscriber) endGroup(ctx context.Context, topic, group string) {
	err := s.store.Topic(topic).End(ctx, group)
	if err != nil {
		s.logger.Info("Could not end the consumer group, so it expires", watermill.LogFields{
			"topic": topic, "consumer_group": group, "error": err.Error(),
		})
	}
}

const (
	// maxHeld is how many messages a consumer names at most, in each partition.
	maxHeld = 50

	// maxHeldBytes limits their ids, which claims carry, too.
	maxHeldBytes = 2048
)

// consumerInfo is what a consumer says of itself to people, in JSON, with some of the messages that
// its handlers have had for longest. Package admin reads it.
func consumerInfo(config SubscriberConfig, extended []delivery.Extended) string {
	info := queue.ConsumerInfo{
		Name: config.ConsumerName, PID: os.Getpid(), MaxDeliveries: config.MaxDeliveries,
	}
	size := 0
	for _, e := range extended[:min(len(extended), maxHeld)] {
		if size += len(e.ID); size > maxHeldBytes {
			break
		}
		if info.Held == nil {
			info.Held = map[string]queue.HeldTimes{}
		}
		info.Held[e.ID] = queue.HeldTimes{e.Token, int64(e.Times)}
	}
	text, err := json.Marshal(info)
	if err != nil {
		return "{}" // of a name and numbers, there is none
	}
	return string(text)
}
