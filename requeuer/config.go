package requeuer

import (
	"cmp"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// DefaultTopic is where failed messages wait.
const DefaultTopic = "requeue"

// Config configures a Requeuer. Client and Publisher are required.
type Config struct {
	// Client and Prefix are those of Redis, as in redisdelay.PublisherConfig. The caller closes the client.
	Client redis.UniversalClient
	Prefix string

	// Publisher publishes messages to their topics again. The caller closes it.
	Publisher message.Publisher

	// Topic is where failed messages wait in Redis. Default: DefaultTopic.
	Topic string

	// PublishTopic says where a message goes back to. Default: the topic that its handler has got it from.
	PublishTopic func(msg *message.Message) (string, error)

	// DelayOnError makes the delays. Its Multiplier counts as a whole number. Default: 5s, then twice the last one, at most 1h.
	DelayOnError middleware.DelayOnError
}

func (c *Config) setDefaults() {
	c.Prefix = cmp.Or(c.Prefix, redisdelay.DefaultPrefix)
	c.Topic = cmp.Or(c.Topic, DefaultTopic)
	if c.PublishTopic == nil {
		c.PublishTopic = poisonedTopic
	}
	c.DelayOnError = cmp.Or(c.DelayOnError, middleware.DelayOnError{InitialInterval: 5 * time.Second, MaxInterval: time.Hour, Multiplier: 1.5})
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
