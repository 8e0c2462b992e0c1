// Package admin sees into the topics of a prefix and acts on their messages: for the people
// who operate a service, and for programs that tell their users what waits. The command
// redisdelay (cmd/redisdelay) is this package for a terminal.
//
// All calls work on standalone Redis, Sentinel and Cluster, with any number of partitions,
// beside running publishers and subscribers, and with topics of any size: no call makes
// Redis look at more than 1,000 messages at once. Times are those of Redis's clock.
package admin

import (
	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

var (
	// ErrTopicNotFound is returned for a topic that nobody has published to or subscribed to.
	ErrTopicNotFound = redisdelay.ErrTopicNotFound

	// ErrGroupNotFound is returned for a consumer group that the topic does not have.
	ErrGroupNotFound = redisdelay.ErrGroupNotFound

	// ErrMessageNotFound is returned for an id or a key that leads to no message: the message is
	// done in all groups, was cancelled, or never was in this topic.
	ErrMessageNotFound = redisdelay.ErrMessageNotFound
)

// Admin sees into topics and acts on them. It pauses, resumes, drains, limits, retires and
// restores groups as a redisdelay.Control does. It is safe for concurrent use, and needs no
// Close.
type Admin struct {
	*redisdelay.Control
	store       *queue.Store
	unmarshaler redisdelay.Unmarshaler
}

// New returns an Admin. It does no I/O. The error is a *redisdelay.ConfigError.
func New(config Config) (*Admin, error) {
	control := redisdelay.ControlConfig{Client: config.Client, Prefix: config.Prefix}
	c, err := redisdelay.NewControl(control)
	if err != nil {
		return nil, err
	}
	if config.Prefix == "" {
		config.Prefix = redisdelay.DefaultPrefix
	}
	if config.Unmarshaler == nil {
		config.Unmarshaler = redisdelay.DefaultMarshaler{}
	}
	store, err := queue.NewStore(config.Client, config.Prefix, observe.Observer{})
	if err != nil {
		return nil, err // which NewControl has found
	}
	return &Admin{Control: c, store: store, unmarshaler: config.Unmarshaler}, nil
}
