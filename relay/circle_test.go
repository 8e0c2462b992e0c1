package relay_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture/dead"
	"github.com/redisdelay/watermill-redisdelay/relay"
)

func TestATargetThatIsReadByTheRelayIsRefused(t *testing.T) {
	s := newScene(t)
	far := redis.NewClient(&redis.Options{Addr: "redis.invalid:6379"})
	t.Cleanup(func() { require.NoError(t, far.Close()) })
	for name, test := range map[string]struct {
		target  *redisdelay.Publisher
		refused bool
	}{
		"the same client":              {s.Publisher(), true},
		"another client of the server": {s.Publisher(func(c *redisdelay.PublisherConfig) { c.Client = s.dial() }), true},
		"another prefix":               {s.Publisher(func(c *redisdelay.PublisherConfig) { c.Prefix = "other" }), false},
		"another server":               {s.Publisher(func(c *redisdelay.PublisherConfig) { c.Client = far }), false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := relay.New(relay.Config{Client: s.Client, Target: test.target}, nil)
			_, err2 := relay.NewPublisher(relay.PublisherConfig{Delayed: s.Publisher(), Target: test.target})
			if !test.refused {
				require.NoError(t, err)
				require.NoError(t, err2)
				return
			}
			for _, err := range []error{err, err2} {
				var bad *redisdelay.ConfigError
				require.ErrorAs(t, err, &bad)
				assert.Equal(t, "Target", bad.Field)
				require.ErrorContains(t, err, "in circles")
			}
		})
	}
}

// through is a publisher behind a decorator, which hides what it is.
type through struct {
	message.Publisher
	to string // the topic; empty: the same
}

func (p through) Publish(topic string, messages ...*message.Message) error {
	if p.to != "" {
		topic = p.to
	}
	return p.Publisher.Publish(topic, messages...)
}

// TestAMessageThatComesBackFromTheTargetBecomesADeadLetter after one round, also by way of
// another topic that the relay reads.
func TestAMessageThatComesBackFromTheTargetBecomesADeadLetter(t *testing.T) {
	for _, way := range []string{"", "/other"} {
		t.Run(way, func(t *testing.T) {
			s := newScene(t)
			end := s.Topic
			target := through{Publisher: s.Publisher()}
			if way != "" {
				end += way
				target.to = end
			}
			s.due("a", "b")
			s.run(func(c *relay.Config) { c.Target, c.Topics = target, []string{s.Topic, s.Topic + "/other"} })
			letters := dead.Letters(s.Beside(way), 2)
			assert.Contains(t, letters[0].Reason, "in circles")
			require.Len(t, letters, 2)
		})
	}
}

// TestATopicNamedLikeAKeyBecomesNoStream: its stream would take the place of what a topic has in
// Redis.
func TestATopicNamedLikeAKeyBecomesNoStream(t *testing.T) {
	for name, change := range map[string]func(s *scene) func(*relay.Config){
		"in one step": func(s *scene) func(*relay.Config) { return toStreams(s.Client) },
		"by another client": func(s *scene) func(*relay.Config) {
			return toStreams(s.dial())
		},
		"by a target": func(s *scene) func(*relay.Config) {
			target, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: s.dial()}, nil)
			require.NoError(t, err)
			return func(c *relay.Config) { c.Target = target }
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.Topic = "{redisdelay:" + s.Topic + ":0}:moving"
			require.NoError(t, s.publisher().Publish(s.Topic, fixture.Delayed("a", time.Millisecond)))
			to := change(s)
			s.run(func(c *relay.Config) {
				to(c)
				c.Topics = nil
			})
			assert.Contains(t, dead.Letters(s.Scene, 1)[0].Reason, "is the name of a key")
			assert.Zero(t, s.Client.Exists(t.Context(), s.Topic).Val())

			config := relay.Config{Client: s.Client, Topics: []string{s.Topic}}
			to(&config)
			_, err := relay.New(config, nil)
			require.ErrorContains(t, err, "is the name of a key")
		})
	}
}
