package relay_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/relay"
)

func TestATargetThatIsReadByTheRelayIsRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	far := redis.NewClient(&redis.Options{Addr: "redis.invalid:6379"})
	t.Cleanup(func() { require.NoError(t, far.Close()) })
	for name, test := range map[string]struct {
		target   *redisdelay.Publisher
		rejected bool
	}{
		"the same client":              {s.Publisher(), true},
		"another client of the server": {s.Publisher(func(c *redisdelay.PublisherConfig) { c.Client = s.dial() }), true},
		"another prefix":               {s.Publisher(func(c *redisdelay.PublisherConfig) { c.Prefix = "other" }), false},
		"another server":               {s.Publisher(func(c *redisdelay.PublisherConfig) { c.Client = far }), false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := relay.New(relay.Config{Client: s.Client, Target: test.target, Topics: []string{s.Topic}}, nil)
			_, err2 := relay.NewPublisher(relay.PublisherConfig{Delayed: s.Publisher(), Target: test.target})
			if !test.rejected {
				require.NoError(t, err)
				require.NoError(t, err2)
				return
			}
			for _, err := range []error{err, err2} {
				var bad *redisdelay.ConfigError
				require.ErrorAs(t, err, &bad)
				assert.Equal(t, "Target", bad.Field)
				require.ErrorContains(t, err, "would receive its own messages")
			}
		})
	}
}

// TestATopicNamedLikeAKeyIsRefused: its stream would take the place of what a topic has in Redis.
func TestATopicNamedLikeAKeyIsRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	target, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: s.dial()}, nil)
	require.NoError(t, err)
	for name, to := range map[string]func(*relay.Config){
		"in one step":       toStreams(s.Client),
		"by another client": toStreams(s.dial()),
		"by a target":       func(c *relay.Config) { c.Target = target },
	} {
		t.Run(name, func(t *testing.T) {
			config := relay.Config{Client: s.Client, Topics: []string{"{redisdelay:" + s.Topic + ":0}:moving"}}
			to(&config)
			_, err := relay.New(config, nil)
			require.ErrorContains(t, err, "the name of a key")
		})
	}
}
