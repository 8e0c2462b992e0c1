package redisdelayotel_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	redisdelayotel "github.com/redisdelay/watermill-redisdelay/redisdelayotel"
)

// TestSpansNameTheServer of the Config: all kinds of them.
func TestSpansNameTheServer(t *testing.T) {
	for server, want := range map[string]map[string]any{
		"redis.internal:6380": {"server.address": "redis.internal", "server.port": int64(6380)},
		"[::1]:6379":          {"server.address": "::1", "server.port": int64(6379)},
		"/run/redis.sock":     {"server.address": "/run/redis.sock"},
		"":                    {},
	} {
		w := watch(t, func(c *redisdelayotel.Config) { c.Server = server })
		router := w.router()
		router.AddConsumerHandler("h", w.Topic, w.Subscriber(w.observed), func(*message.Message) error { return nil })
		w.running(router)
		w.send(message.NewMessage("a", nil))
		for _, name := range []string{"send ", "process ", "ack "} {
			got := attrs(w.one(name + w.Topic))
			for _, key := range []string{"server.address", "server.port"} {
				assert.Equal(t, want[key], got[key], "%s%s", name, key)
			}
		}
	}
}

func TestABadServerIsNamed(t *testing.T) {
	for _, server := range []string{"redis", "redis:many", ":6379", "redis:0"} {
		_, err := redisdelayotel.New(redisdelayotel.Config{Server: server})
		var wrong *redisdelay.ConfigError
		require.ErrorAs(t, err, &wrong, server)
		assert.Equal(t, "Server", wrong.Field)
	}
}

// TestWhatHasNoTopicNamesNone: neither its span nor its metrics have an empty destination.
func TestWhatHasNoTopicNamesNone(t *testing.T) {
	w := watch(t)
	_, err := w.telemetry.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, nil })(message.NewMessage("a", nil))
	require.NoError(t, err)
	assert.NotContains(t, attrs(w.one("process")), "messaging.destination.name")
	series := w.series()
	assert.NotEmpty(t, series)
	for name := range series {
		assert.NotContains(t, name, "messaging.destination.name")
	}
}
