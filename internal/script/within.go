package script

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// withTimeout is a client with these timeouts, and with the same connections and hooks; the client itself if it cannot have other
// timeouts. It is made for each call, since hooks that are added later must see the call, too.
func withTimeout(client redis.UniversalClient, timeout time.Duration) redis.UniversalClient {
	if can, is := client.(interface {
		WithTimeout(timeout time.Duration) *redis.Client
	}); is {
		return can.WithTimeout(timeout)
	}
	return client
}
