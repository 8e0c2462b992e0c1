// Package forrelay has what only package relay needs of a redisdelay.Publisher.
//
// An init function of package redisdelay sets Of: another package reaches unexported methods only through a value
// that theirs sets, and exported ones, promoted or not, would show in the documentation of redisdelay.
package forrelay

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Publisher is a redisdelay.Publisher that others are built on.
type Publisher interface {
	// DelayOf gives a message the delay that Publish would give it (that of its context, or the
	// default of PublisherConfig.Delay, unless its metadata have one) and returns what remains of
	// it: 0 or less says that Publish would make the message due at once. A message that its handler
	// publishes again stays as it is. It stores nothing and does no I/O.
	//
	// The error is ErrEmptyTopic, ErrNilMessage, a *DelayError, or that of the default's function.
	DelayOf(topic string, msg *message.Message) (time.Duration, error)

	// RegisterGroup makes a consumer group known in a topic, as Subscriber.SubscribeInitialize
	// does, so that everything published afterwards reaches the group, until somebody deletes the
	// topic or the group, or Redis loses it. It asks Redis each time. It tries again through
	// connection errors until ctx ends or PublishTimeout has passed. It changes nothing in a group
	// that is known. An empty group is DefaultConsumerGroup. The ctx of a delivered message counts
	// for as long as the consumer holds the message, as in Publish.
	//
	// Errors: ErrEmptyTopic, ErrPublisherClosed, ErrTooManyGroups, ErrGroupRetired,
	// ErrServerTooOld, ErrProtocolTooNew, *KeyTypeError, a *ConfigError for Broadcast, which is the
	// name of no group, or that of ctx or of Redis. The group may be registered all the same.
	RegisterGroup(ctx context.Context, topic, group string) error
}

// Of returns the Publisher of a *redisdelay.Publisher. Package redisdelay sets it when it is
// loaded.
var Of func(publisher any) Publisher
