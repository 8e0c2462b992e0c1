package requeuer

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// DefaultTopic is the topic in which failed messages wait.
const DefaultTopic = "requeue"

// Config configures a Requeuer. Client and Publisher are required.
type Config struct {
	// Client and Prefix are those of Redis, as in redisdelay.PublisherConfig. The caller closes the client.
	Client redis.UniversalClient
	Prefix string

	// Publisher publishes messages to their topics again, with their UUIDs. A broker must not drop repeated UUIDs, as
	// JetStream does with TrackMsgId. The caller closes it.
	Publisher message.Publisher

	// Topic is the topic in Redis in which failed messages wait. Requeuers with the same Redis, Prefix and Topic
	// publish each other's messages, so another broker or GeneratePublishTopic needs another Topic or Prefix. Default:
	// DefaultTopic.
	Topic string

	// GeneratePublishTopic returns the topic to which a message is published again. All consumer groups of that topic receive
	// it, even those that have handled it, so prefer a topic that only this service reads. After an error or a panic,
	// the message is retried after 100ms, and then less often, down to once a minute, without limit. Default: the topic
	// from which the handler received it.
	GeneratePublishTopic func(msg *message.Message) (string, error)

	// DelayOnError sets the delays: InitialInterval, then the last delay times Multiplier (at least 1, cut to a whole
	// number), up to MaxInterval. The intervals must be at least redisdelay.MinRedeliveryDelay. Defaults: 5s; 2; 1h, or
	// InitialInterval if that is longer.
	DelayOnError middleware.DelayOnError
}

func (c *Config) setDefaults() {
	c.Prefix = cmp.Or(c.Prefix, redisdelay.DefaultPrefix)
	c.Topic = cmp.Or(c.Topic, DefaultTopic)
	if c.GeneratePublishTopic == nil {
		c.GeneratePublishTopic = poisonedTopic
	}
	d := &c.DelayOnError
	d.InitialInterval = cmp.Or(d.InitialInterval, 5*time.Second)
	d.MaxInterval = cmp.Or(d.MaxInterval, max(time.Hour, d.InitialInterval))
	d.Multiplier = cmp.Or(d.Multiplier, 2)
}

// validate reports the first invalid field, as a *redisdelay.ConfigError, except those that the publisher and the
// subscriber check.
func (c Config) validate() error {
	if c.Publisher == nil {
		return &redisdelay.ConfigError{Field: "Publisher", Problem: "is nil"}
	}
	bad := func(field string, value, least any) error {
		return &redisdelay.ConfigError{Field: "DelayOnError." + field, Problem: fmt.Sprintf("is %v, want at least %v", value, least)}
	}
	switch d, shortest := c.DelayOnError, redisdelay.MinRedeliveryDelay; {
	case d.InitialInterval < shortest:
		return bad("InitialInterval", d.InitialInterval, shortest)
	case d.MaxInterval < shortest:
		return bad("MaxInterval", d.MaxInterval, shortest)
	case d.Multiplier < 1 || math.IsNaN(d.Multiplier):
		return bad("Multiplier", d.Multiplier, 1)
	case d.Multiplier >= math.MaxInt64/float64(max(d.InitialInterval, d.MaxInterval)): // their product would overflow
		return &redisdelay.ConfigError{
			Field: "DelayOnError.Multiplier", Problem: fmt.Sprintf("is %v, which is too much for the intervals", d.Multiplier),
		}
	}
	return nil
}

// errNoTopic is returned for a message in the topic of failed messages that no handler has failed on.
var errNoTopic = errors.New("the message does not say from which topic it comes: metadata " + middleware.PoisonedTopicKey + " are missing")

func poisonedTopic(msg *message.Message) (string, error) {
	topic := msg.Metadata.Get(middleware.PoisonedTopicKey)
	if topic == "" {
		return "", errNoTopic
	}
	return topic, nil
}
