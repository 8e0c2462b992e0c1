package redisdelay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// DelayOf gives a message the delay that Publish would give it (that of its context, or the
// default of PublisherConfig.Delay, unless its metadata have one) and returns what remains of
// it: 0 or less says that Publish would make the message due at once. It is for publishers
// that are built on this one and treat messages with a delay in another way. It stores
// nothing and does no I/O.
//
// The error is ErrEmptyTopic, ErrNilMessage, a *DelayError, or that of the default's function.
func (p *Publisher) DelayOf(topic string, msg *message.Message) (time.Duration, error) {
	if topic == "" {
		return 0, ErrEmptyTopic
	}
	if msg == nil {
		return 0, ErrNilMessage
	}
	if msg.Metadata == nil {
		msg.Metadata = message.Metadata{}
	}
	if err := p.delays.Publish(topic, msg); err != nil {
		return 0, public(err)
	}
	remaining, err := pendingHeaders(msg.Metadata).remaining(time.Now())
	if err != nil {
		return 0, leave(err, "message %q", msg.UUID)
	}
	return remaining, nil
}

// RegisterGroup makes a consumer group known in a topic, as Subscriber.SubscribeInitialize
// does, for a publisher that must be sure that the group gets what it publishes from then on,
// until somebody deletes the topic or the group, or Redis loses it. It asks Redis each time.
// It tries again through connection errors until ctx ends or PublishTimeout has passed. It
// changes nothing in a group that is known. An empty group is DefaultConsumerGroup. The ctx of a
// delivered message counts for as long as the consumer holds the message, as in Publish.
//
// Errors: ErrEmptyTopic, ErrPublisherClosed, ErrTooManyGroups, ErrGroupRetired,
// ErrServerTooOld, ErrProtocolTooNew, *KeyTypeError, a *ConfigError for Broadcast, which is the
// name of no group, or that of ctx or of Redis. The group may be registered all the same.
func (p *Publisher) RegisterGroup(ctx context.Context, topic, group string) error {
	switch {
	case topic == "":
		return ErrEmptyTopic
	case p.publisher.Closed():
		return ErrPublisherClosed
	case group == Broadcast:
		return &ConfigError{"group", "is Broadcast, which is a group of each Subscribe"}
	case group == "":
		group = DefaultConsumerGroup
	}
	ctx, cancel := context.WithTimeout(callerOf(ctx), p.config.PublishTimeout)
	defer cancel()
	known := p.store.Topic(topic)
	membership := known.Membership(group, queue.Terms{})
	pause := backoff.Backoff{Min: 50 * time.Millisecond, Max: time.Second}
	for {
		_, err := known.Version(ctx) // else Partitions relies on what this process has seen
		if err == nil || errors.Is(err, ErrTopicNotFound) {
			_, err = membership.Partitions(ctx)
		}
		if err == nil {
			return nil
		}
		certain := errors.Is(err, ErrTooManyGroups) || errors.Is(err, ErrGroupRetired) || !script.Transient(err)
		if !certain && !pause.Wait(ctx) {
			err, certain = fmt.Errorf("%w: %w", context.Cause(ctx), err), true
		}
		if certain {
			return leave(err, "register group %q for %q", group, topic)
		}
	}
}
