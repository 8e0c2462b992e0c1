package relay

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/outage"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// Relay publishes delayed messages to a target when they are due. It is safe for concurrent use.
type Relay struct {
	config    Config
	store     *queue.Store
	target    message.Publisher
	logger    watermill.LoggerAdapter
	otherSlot sync.Map // topics whose streams are in another slot, as Redis has reported
}

// New returns a Relay. It does no I/O. The error is a *redisdelay.ConfigError. A nil logger logs nothing.
func New(config Config, logger watermill.LoggerAdapter) (*Relay, error) {
	config.setDefaults()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	prefix := config.Prefix
	setDefault(&prefix, redisdelay.DefaultPrefix)
	store := queue.NewStore(config.Client, prefix, observe.Observer{})
	r := &Relay{config: config, store: store, target: config.Target, logger: logger}
	if config.Streams != nil {
		streams := *config.Streams // Close would close the caller's client, so it is never called
		if streams.Marshaller == nil {
			streams.Marshaller = redisstream.DefaultMarshallerUnmarshaller{}
		}
		streams.Marshaller = marshaller{streams.Marshaller}
		target, err := redisstream.NewPublisher(streams, logger)
		if err != nil {
			return nil, &redisdelay.ConfigError{Field: "Streams", Problem: err.Error()}
		}
		r.target, r.config.Streams = target, &streams
	}
	return r, nil
}

// Run publishes messages that are due until ctx ends. Then it waits up to CloseTimeout for Publish calls of the target,
// and up to a second to return its messages to the queue. A call that takes longer continues, and its messages are
// published again. Any number of processes may run a relay for the same topics. It starts and continues while Redis or
// the target are unavailable, and logs an outage once.
//
// A process publishes the messages of a partition in the order of their due times, unless the target fails. So a topic
// with one partition, the default, keeps its order with one process.
//
// The error means that Redis did not record in time which messages were published, so some may be published again.
func (r *Relay) Run(ctx context.Context) error {
	subscriber, err := redisdelay.NewSubscriber(r.config.subscriber(), r.logger)
	if err != nil {
		return err // New has reported it
	}
	var topics sync.WaitGroup // the goroutines end with ctx
	for _, topic := range r.config.Topics {
		topics.Go(func() { r.relay(ctx, subscriber, topic) })
	}
	<-ctx.Done()
	topics.Wait()
	return subscriber.Close() //nolint:contextcheck // it ends after ctx, and has a timeout of its own
}

// relay starts to relay a topic. It retries until the subscription succeeds or ctx ends.
func (r *Relay) relay(ctx context.Context, subscriber *redisdelay.Subscriber, topic string) {
	rt := newRoute(ctx, r, topic)
	pause := backoff.Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second}
	outages := outage.New(logging(r.logger), 0)
	place := observe.Place{Topic: topic, Group: r.config.ConsumerGroup, Partition: -1}
	for {
		err := subscriber.SubscribeBatches(ctx, topic, r.config.BatchSize, rt.handle)
		if err == nil {
			fields := fieldsOf(place)
			fields["in_one_step"] = r.InOneStep(topic)
			r.logger.Info("Relaying delayed messages", fields)
			return
		}
		if errors.Is(err, redisdelay.ErrSubscriberClosed) || ctx.Err() != nil {
			return
		}
		outages.Failed(subscribing, place, err)
		if !pause.Wait(ctx) {
			return
		}
	}
}

// InOneStep reports whether messages of a topic move to their stream in one step, so that a crash cannot duplicate
// them. Otherwise they are relayed at least once. It needs Config.Streams with the same client and, on a Cluster, a
// stream in the same slot: `CLUSTER KEYSLOT <topic>` and `CLUSTER KEYSLOT {<prefix>:<topic>:0}` must be equal, with
// %25, %7D and %3A for each %, } and : of the topic in the second one. The log says it, too.
//
// The answer is for the first partition; the others have slots of their own. If a proxy hides a Cluster, the relay
// finds out with the first message, and logs that.
func (r *Relay) InOneStep(topic string) bool {
	_, otherSlot := r.otherSlot.Load(topic)
	return !otherSlot && r.config.sameClient() && r.store.Topic(topic).Partition(0).Group(r.config.ConsumerGroup).CanRelay(topic)
}

// The background work of a relay, apart from its subscriptions.
const (
	subscribing observe.Activity = "subscribe"
	publishing  observe.Activity = "publish"
)

// logging is an observer that logs the outages of a relay.
func logging(logger watermill.LoggerAdapter) observe.Observer {
	return observe.Observer{
		OutageBegan: func(e observe.OutageBegan) { logger.Error(failureText(e.Activity), e.Err, fieldsOf(e.Place)) },
		OutageEnded: func(e observe.OutageEnded) {
			if e.Activity == publishing { // a subscription is logged as "Relaying delayed messages"
				logger.Info("The target takes messages of the topic again", fieldsOf(e.Place))
			}
		},
	}
}

func failureText(what observe.Activity) string {
	if what == subscribing {
		return "Could not begin to relay the topic; trying again"
	}
	return "The target takes no messages of the topic; trying again"
}

func fieldsOf(place observe.Place) watermill.LogFields {
	fields := watermill.LogFields{}
	if place.Topic != "" {
		fields["topic"] = place.Topic
	}
	if place.Group != "" {
		fields["consumer_group"] = place.Group
	}
	return fields
}
