package redisdelay

import (
	"errors"

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

	// ErrProtocolTooNew is returned by everything that is done with a topic when a newer
	// version of this library has made the topic's data what this one does not understand.
	// Nothing is changed. The cure is to update this library.
	ErrProtocolTooNew = queue.ErrProtocolTooNew
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
