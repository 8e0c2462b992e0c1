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

// Relay publishes delayed messages to a target when they are due. It is safe for concurrent
// use.
type Relay struct {
	config Config
	store  *queue.Store
	target message.Publisher
	logger watermill.LoggerAdapter
	apart  sync.Map // topics of which Redis has said that the stream is in another slot
}

// New returns a Relay. It does no I/O. The error is a *redisdelay.ConfigError. A nil logger
// means none.
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
	store, err := queue.NewStore(config.Client, prefix, observe.Observer{})
	if err != nil {
		return nil, err // which Validate has found
	}
	r := &Relay{config: config, store: store, target: config.Target, logger: logger}
	if config.Streams != nil {
		streams := *config.Streams // Close would close the caller's client, so it is never called
		if streams.Marshaller == nil {
			streams.Marshaller = redisstream.DefaultMarshallerUnmarshaller{}
		}
		streams.Marshaller = marshaller{streams.Marshaller}
		if r.target, err = redisstream.NewPublisher(streams, logger); err != nil {
			return nil, &redisdelay.ConfigError{Field: "Streams", Problem: err.Error()}
		}
		r.config.Streams = &streams
	}
	return r, nil
}

// Run publishes what is due until ctx ends. Then it lets the Publish calls under way finish,
// for CloseTimeout at most, and gives back what it holds, in a second more at most. A call that takes longer runs on, and
// its messages are published again: close the target when no call is under way. Any number of
// processes may run a relay for the same topics.
//
// Messages of each partition of a topic are published in the order of their due times, in
// batches, by each process for itself: with one process and one partition, which is the
// default, they stay in order unless the target fails.
//
// Redis and the target may be away, also when Run begins: it goes on when they are back, and
// logs an outage once. The error says that not everything was settled in time; messages that
// the target has may be published again then.
func (r *Relay) Run(ctx context.Context) error {
	subscriber, err := redisdelay.NewSubscriber(r.config.subscriber(), r.logger)
	if err != nil {
		return err // which Validate has found
	}
	var topics sync.WaitGroup // end with ctx
	for _, topic := range r.config.Topics {
		topics.Go(func() { r.relay(ctx, subscriber, topic) })
	}
	<-ctx.Done()
	topics.Wait()
	return subscriber.Close() //nolint:contextcheck // it ends after ctx, and has a timeout of its own
}

// relay begins to relay a topic. It tries until that succeeds or ctx ends.
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
		outages.Failed(beginning, place, err)
		if !pause.Wait(ctx) {
			return
		}
	}
}

// InOneStep tells whether moving a message of a topic to its stream is one step, so that
// nothing that dies makes two of it: its stream must be on the server of the queue, reached by
// the same client, and on a Cluster the stream and the messages must share a slot. This is so
// if `CLUSTER KEYSLOT <topic>` and `CLUSTER KEYSLOT {<prefix>:<topic>:0}` are equal, with %25,
// %7D and %3A for each %, } and : of the topic in the second one. Else messages are relayed at
// least once. The log says the same when the relay begins with a topic.
//
// A topic has one slot for each partition. The answer is for the first one; each message goes
// by its own. If a proxy or a client for one node hides that there is a Cluster, the relay
// finds out with the first message, and logs that.
func (r *Relay) InOneStep(topic string) bool {
	_, apart := r.apart.Load(topic)
	return !apart && r.config.sameClient() && r.store.Topic(topic).Partition(0).Group(r.config.ConsumerGroup).CanRelay(topic)
}

// What a relay does all the time, beside what its subscriptions do.
const (
	beginning observe.Activity = "begin"
	handingOn observe.Activity = "hand on"
)

// logging is an observer that logs the outages of a relay.
func logging(logger watermill.LoggerAdapter) observe.Observer {
	return observe.Observer{
		OutageBegan: func(e observe.OutageBegan) { logger.Error(failureText(e.What), e.Err, fieldsOf(e.Place)) },
		OutageEnded: func(e observe.OutageEnded) {
			if e.What == handingOn { // beginning has a line of its own
				logger.Info("The target takes messages of the topic again", fieldsOf(e.Place))
			}
		},
	}
}

func failureText(what observe.Activity) string {
	if what == beginning {
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
