// Package requeuer retries messages of any broker later: what a handler fails on waits in Redis, without holding up the
// messages behind it, and goes back to its topic when its delay is over. The delay grows with each failure.
//
//	r, err := requeuer.New(requeuer.Config{Client: client, Publisher: broker}, logger)
//	router.AddMiddleware(r.Middleware()...)
//	go r.Run(ctx) // publishes to the broker again what is due
//
// See examples/requeue.
//
// A service whose messages come from a redisdelay.Subscriber needs no requeuer: a nack waits by itself.
package requeuer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/components/requeuer"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// Requeuer keeps failed messages in Redis until they are retried. It is safe for concurrent use.
type Requeuer struct {
	failed     *redisdelay.Publisher
	subscriber *redisdelay.Subscriber
	middleware []message.HandlerMiddleware
	requeuer   *requeuer.Requeuer
}

// New returns a Requeuer. It does no I/O. The error is a *redisdelay.ConfigError. A nil logger means none.
func New(config Config, logger watermill.LoggerAdapter) (*Requeuer, error) {
	config.setDefaults()
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	if err := config.validate(); err != nil {
		return nil, err
	}
	failed, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: config.Client, Prefix: config.Prefix}, logger)
	if err != nil {
		return nil, err
	}
	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: config.Client, Prefix: config.Prefix}, logger)
	if err != nil {
		return nil, err
	}
	poison, err := middleware.PoisonQueue(waiting{failed}, config.Topic)
	if err != nil {
		return nil, fmt.Errorf("redisdelay: requeuer: %w", err)
	}
	r := &Requeuer{
		failed: failed, subscriber: subscriber,
		middleware: []message.HandlerMiddleware{poison, config.DelayOnError.Middleware, withoutMessages, middleware.Recoverer},
	}
	r.requeuer, err = requeuer.NewRequeuer(requeuer.Config{
		Subscriber: patient{subscriber, logger}, SubscribeTopic: config.Topic, Publisher: config.Publisher,
		GeneratePublishTopic: func(p requeuer.GeneratePublishTopicParams) (string, error) {
			back(p.Message)
			keepDelay(p.Message)
			return config.PublishTopic(p.Message)
		},
	}, logger)
	if err != nil {
		return nil, fmt.Errorf("redisdelay: requeuer: %w", err)
	}
	return r, nil
}

// keepDelay leaves the delay that is over in a form from which DelayOnError makes the next one: as the Subscriber hands out
// a delay, it is one that a publisher gave, which is no duration to a parser.
func keepDelay(msg *message.Message) {
	if after, given := strings.CutPrefix(msg.Metadata.Get(delay.DelayedForKey), "+ "); given {
		msg.Metadata.Set(delay.DelayedForKey, "+"+after)
	}
}

// Middleware is for the handlers whose failed messages are to be retried:
//
//	router.AddMiddleware(r.Middleware()...)
//
// A handler that fails or panics has its message acked once Redis has it, and nacked if Redis does not take it. What it returns with
// its error is not published. While the message waits, its key, ordering key and expiration mean nothing; it goes back with their
// metadata as they came.
func (r *Requeuer) Middleware() []message.HandlerMiddleware { return r.middleware }

// withoutMessages drops what a failed handler has returned, as a Router does. PoisonQueue, which is outside, takes the error, so
// the Router would publish it.
func withoutMessages(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := h(msg)
		if err != nil {
			produced = nil
		}
		return produced, err
	}
}

// Run publishes messages again when their delays are over, until ctx ends. Any number of processes may run it. A message is
// published at least once: it may come twice if the process dies between publishing it and saying so.
//
// Redis may be away, also when Run begins: it goes on when Redis is back, and logs once that it waits. The error says that
// Close was called too early, or that Run was called before: a Requeuer runs once.
func (r *Requeuer) Run(ctx context.Context) error { return r.requeuer.Run(ctx) }

// Close ends what New has made. Call it when the routers with the Middleware, and Run, have ended.
func (r *Requeuer) Close() error { return errors.Join(r.subscriber.Close(), r.failed.Close()) }

// patient subscribes when Redis is there. A Router that cannot subscribe ends for good.
type patient struct {
	*redisdelay.Subscriber
	logger watermill.LoggerAdapter
}

// Subscribe tries again until ctx ends, which ends the Router without an error.
func (p patient) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	for logged := false; ; logged = true {
		messages, err := p.Subscriber.Subscribe(ctx, topic)
		if err == nil || errors.Is(err, redisdelay.ErrSubscriberClosed) {
			return messages, err
		}
		if !logged && ctx.Err() == nil {
			p.logger.Error("Could not subscribe to the failed messages; trying again", err, watermill.LogFields{"topic": topic})
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			none := make(chan *message.Message)
			close(none)
			return none, nil
		}
	}
}
