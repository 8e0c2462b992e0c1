package script

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// maxLeft is the longest ReadTimeout with which the client is left to end a call that takes too long, by closing its connection.
// A few such calls leave connections of the pool for others.
const maxLeft = 10 * time.Second

// tooSoonFor is how long calls have their own timeouts after the client has ended a call that could have taken longer.
const tooSoonFor = time.Minute

// endsSoon reports whether the client itself soon ends a call that takes too long.
func (c *Client) endsSoon() bool { return c.readTimeout > 0 && c.readTimeout <= maxLeft }

// ownTimeouts reports whether a call that may take this long has its own timeouts. The client's timeouts are preferred, because its
// hooks see the call then.
func (c *Client) ownTimeouts(within time.Duration) bool {
	return !c.endsSoon() || c.readTimeout < within && time.Since(time.Unix(0, c.endedTooSoon.Load())) < tooSoonFor
}

// withTimeout returns a client with these timeouts and the same connections; the client itself if it cannot have other timeouts.
// In go-redis 9.23, hooks do not see the calls of the new client.
func withTimeout(client redis.UniversalClient, timeout time.Duration) redis.UniversalClient {
	if can, is := client.(interface {
		WithTimeout(timeout time.Duration) *redis.Client
	}); is {
		return can.WithTimeout(timeout)
	}
	return client
}
