package acceptance

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/redistest"
)

func TestSettingsThatLoseMessagesAreTold(t *testing.T) {
	const eviction, persistence = "maxmemory-policy is allkeys-lru; set it to noeviction", "set appendonly to yes"
	tests := map[string]struct {
		options               []string
		eviction, persistence int
	}{
		"safe":            {redistest.Durable, 0, 0},
		"snapshots":       {[]string{"--save", "3600 1"}, 0, 0},
		"evicting":        {append([]string{"--maxmemory-policy", "allkeys-lru"}, redistest.Durable...), 1, 0},
		"nothing is kept": {nil, 0, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBenchOn(t, redistest.New(t, test.options...))
			for range 3 { // once for the server, not for each publisher or subscriber
				p := b.publisher()
				require.NoError(t, p.Publish(b.topic, message.NewMessage("a", nil)))
				require.NoError(t, p.Publish(b.topic, message.NewMessage("b", nil)))
				b.subscribe()
			}
			assert.Equal(t, test.eviction, b.logs.containing(eviction))
			assert.Equal(t, test.persistence, b.logs.containing(persistence))
			assert.Equal(t, test.eviction+test.persistence, b.logs.containing("warning: "))
		})
	}
}

func TestSettingsThatMayNotBeReadAreNoProblem(t *testing.T) {
	server := redistest.New(t)
	b := newBenchOn(t, server)
	redistest.Command(t, b.client, "ACL", "SETUSER", "plain", "on", ">pw", "~*", "&*", "+@all", "-info", "-config")
	plain := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "plain", Password: "pw"})
	t.Cleanup(func() { _ = plain.Close() })
	messages := b.subscribe(func(c *subConfig) { c.Client = plain })
	assert.Zero(t, b.logs.containing("warning: "))
	b.publish("a")
	b.expect(messages, "a")
	assert.Zero(t, b.logs.containing("error: "))
}
