package acceptance

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func TestSettingsThatLoseMessagesAreLogged(t *testing.T) {
	const eviction, persistence = "maxmemory-policy is allkeys-lru; set it to noeviction", "set appendonly to yes"
	tests := map[string]struct {
		options               []string
		eviction, persistence int
	}{
		"safe":           {redistest.Durable, 0, 0},
		"snapshots":      {[]string{"--save", "3600 1"}, 0, 0},
		"evicting":       {append([]string{"--maxmemory-policy", "allkeys-lru"}, redistest.Durable...), 1, 0},
		"no persistence": {nil, 0, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := fixture.NewOn(t, redistest.New(t, test.options...))
			p, sub := s.Publisher(), s.Subscriber()
			require.NoError(t, p.Publish(s.Topic)) // stores nothing, so it says nothing about the server
			require.NoError(t, p.PublishAsync(s.Topic).Wait(t.Context()))
			assert.Zero(t, s.Log.Count("warning: "))
			for range 3 { // the publisher and the subscriber each log it once
				require.NoError(t, p.Publish(s.Topic, message.NewMessage("a", nil)))
				_, err := sub.Subscribe(t.Context(), s.Topic)
				require.NoError(t, err)
			}
			assert.Equal(t, 2*test.eviction, s.Log.Count(eviction))
			assert.Equal(t, 2*test.persistence, s.Log.Count(persistence))
			assert.Equal(t, 2*(test.eviction+test.persistence), s.Log.Count("warning: "))
		})
	}
}

// TestARejectedSettingsCheckIsNoFailure, whatever the error that a proxy returns.
func TestARejectedSettingsCheckIsNoFailure(t *testing.T) {
	server := redistest.New(t) // without persistence, so CONFIG is asked
	for _, command := range []string{"info", "config"} {
		for _, answer := range []string{
			"NOPERM this user has no permissions to run the 'info' command",
			"ERR unknown command 'info'",
			"ERR No permission to execute this command",
			"ERR command 'info' not support",
			"ERR unsupported command",
			"LOADING the proxy is not ready",
			redistest.Closed,
		} {
			t.Run(command+" "+answer, func(t *testing.T) {
				addr := redistest.NewProxy(t, server.Addr, redistest.Refuse(command, answer))
				client := redis.NewClient(&redis.Options{Addr: addr})
				t.Cleanup(func() { _ = client.Close() })
				s := fixture.NewWith(t, client)
				messages := s.Subscribe()
				s.Publish("a")
				s.Expect(messages, "a")
				assert.Zero(t, s.Log.Count("error: ")+s.Log.Count("warning: "), "%v", s.Log.Lines())
			})
		}
	}
}
