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

// DefaultTopic is where failed messages wait.
const DefaultTopic = "requeue"

// Config configures a Requeuer. Client and Publisher are required.
type Config struct {
	// Client and Prefix are those of Redis, as in redisdelay.PublisherConfig. The caller closes the client.
	Client redis.UniversalClient
	Prefix string

	// Publisher publishes messages to their topics again, with their UUIDs: a broker that drops a UUID that it has had (JetStream,
	// with TrackMsgId) would lose them. The caller closes it.
	Publisher message.Publisher

	// Topic is where failed messages wait in Redis. Requeuers with the same Redis, Prefix and Topic publish each other's
	// messages: those of another broker, or with another PublishTopic, need a Topic or a Prefix of their own.
	// Default: DefaultTopic.
	Topic string

	// PublishTopic says where a message goes back to. All consumer groups of that topic get the retry, also those that
	// have handled the message: a topic that only this service reads avoids that. After an error or a panic, and if Publisher
	// fails, the message is tried again after 100ms, and then more rarely, down to once a minute, without end. Default: the topic
	// that its handler has got it from.
	PublishTopic func(msg *message.Message) (string, error)

	// DelayOnError makes the delays: InitialInterval, then the last one times Multiplier, at most MaxInterval. Each field has its
	// own default: 5s; 2; and 1h, or InitialInterval if that is longer. The intervals must be at least
	// redisdelay.MinRedeliveryDelay, and Multiplier at least 1; it counts as a whole number, as Watermill has it.
	DelayOnError middleware.DelayOnError
}

func (c *Config) setDefaults() {
	c.Prefix = cmp.Or(c.Prefix, redisdelay.DefaultPrefix)
	c.Topic = cmp.Or(c.Topic, DefaultTopic)
	if c.PublishTopic == nil {
		c.PublishTopic = poisonedTopic
	}
	d := &c.DelayOnError
	d.InitialInterval = cmp.Or(d.InitialInterval, 5*time.Second)
	d.MaxInterval = cmp.Or(d.MaxInterval, max(time.Hour, d.InitialInterval))
	d.Multiplier = cmp.Or(d.Multiplier, 2)
}

// validate reports the first field that cannot be used, as a *redisdelay.ConfigError, except those that the publisher and the
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
