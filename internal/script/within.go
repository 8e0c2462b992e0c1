package script

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// maxLeft is the longest ReadTimeout with which a call that takes too long is left to the client, which closes its connection at
// the latest then. A few such calls leave connections of the pool for others.
const maxLeft = 10 * time.Second

// tooSoonFor is how long calls have timeouts of their own after the client has ended one that could have taken longer.
const tooSoonFor = time.Minute

// endsSoon reports whether the client ends a call soon by itself.
func (c *Client) endsSoon() bool { return c.readTimeout > 0 && c.readTimeout <= maxLeft }

// ownTimeouts reports whether a call that may take this long has timeouts of its own. Where the client's can serve, they do, because
// its hooks see the call then.
func (c *Client) ownTimeouts(within time.Duration) bool {
	return !c.endsSoon() || c.readTimeout < within && time.Since(time.Unix(0, c.endedTooSoon.Load())) < tooSoonFor
}

// withTimeout is a client with these timeouts and the same connections; the client itself if it cannot have other timeouts. With
// go-redis 9.23, hooks do not see its calls.
func withTimeout(client redis.UniversalClient, timeout time.Duration) redis.UniversalClient {
	if can, is := client.(interface {
		WithTimeout(timeout time.Duration) *redis.Client
	}); is {
		return can.WithTimeout(timeout)
	}
	return client
}
