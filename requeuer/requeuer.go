// Package requeuer retries messages of any broker later. A message whose handler fails waits in Redis, so that it does
// not block the messages behind it, and is published to its topic again after a delay, which grows with each failure.
//
//	r, err := requeuer.New(requeuer.Config{Client: client, Publisher: broker}, logger)
//	router.AddMiddleware(r.Middleware()...)
//	go r.Run(ctx) // publishes due messages to the broker
//
// See examples/requeue. Messages of a redisdelay.Subscriber need no requeuer, because they wait after a Nack.
package requeuer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/components/requeuer"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/delays"
)

// Requeuer stores failed messages in Redis until they are retried. It is safe for concurrent use.
type Requeuer struct {
	failed     *redisdelay.Publisher
	subscriber *redisdelay.Subscriber
	middleware []message.HandlerMiddleware
	requeuer   *requeuer.Requeuer
}

// New returns a Requeuer. It does no I/O. The error is a *redisdelay.ConfigError. A nil logger logs nothing.
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
	poison, err := middleware.PoisonQueue(waitPublisher{failed}, config.Topic)
	if err != nil {
		return nil, fmt.Errorf("redisdelay: requeuer: %w", err)
	}
	r := &Requeuer{
		failed: failed, subscriber: subscriber,
		middleware: []message.HandlerMiddleware{
			poison, config.DelayOnError.Middleware, beforeDelay(config.DelayOnError), withoutMessages, middleware.Recoverer,
		},
	}
	r.requeuer, err = requeuer.NewRequeuer(requeuer.Config{
		Subscriber: retryingSubscriber{subscriber, logger}, SubscribeTopic: config.Topic, Publisher: config.Publisher,
		GeneratePublishTopic: func(p requeuer.GeneratePublishTopicParams) (string, error) {
			restoreMetadata(p.Message)
			delays.MarkMade(p.Message.Metadata) // DelayOnError derives the next delay from it
			return config.GeneratePublishTopic(p.Message)
		},
	}, logger)
	if err != nil {
		return nil, fmt.Errorf("redisdelay: requeuer: %w", err)
	}
	return r, nil
}

// Middleware returns the middlewares for handlers whose failed messages are retried:
//
//	router.AddMiddleware(r.Middleware()...)
//
// If a handler fails or panics, its message is acked once Redis has stored it, and otherwise nacked. The messages that
// it returns are not published. The key, ordering key and expiration of a message have no effect while it waits, and
// are published unchanged with it.
func (r *Requeuer) Middleware() []message.HandlerMiddleware { return r.middleware }

// beforeDelay lets DelayOnError begin with its InitialInterval if a failed message has a shorter delay than DelayOnError makes. That
// is the publisher's, and a multiple of zero is zero.
func beforeDelay(c middleware.DelayOnError) message.HandlerMiddleware {
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			produced, err := h(msg)
			if last, invalid := time.ParseDuration(msg.Metadata.Get(delay.DelayedForKey)); err != nil && invalid == nil {
				if last < min(c.InitialInterval, c.MaxInterval) {
					delete(msg.Metadata, delay.DelayedForKey)
				}
			}
			return produced, err
		}
	}
}

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

// Run publishes messages again when their delays are over, until ctx ends. Any number of processes may run it. If a
// process dies, a message may be published twice. Run starts and continues while Redis is unavailable. The error says
// that Close was called too early, or that Run was called before: a Requeuer runs once.
func (r *Requeuer) Run(ctx context.Context) error { return r.requeuer.Run(ctx) }

// Close closes what New has created. Call it after the routers with the Middleware, and Run, have ended.
func (r *Requeuer) Close() error { return errors.Join(r.subscriber.Close(), r.failed.Close()) }

// retryingSubscriber subscribes when Redis is there. A Router that cannot subscribe ends for good.
type retryingSubscriber struct {
	*redisdelay.Subscriber
	logger watermill.LoggerAdapter
}

// Subscribe tries again until ctx ends, which ends the Router without an error.
func (p retryingSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
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
