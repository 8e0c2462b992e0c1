package script

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// pingTimeout is how long a pooled connection may take to answer a ping.
	pingTimeout = 500 * time.Millisecond

	// maxPinged is how many pooled connections are pinged at once.
	maxPinged = 100
)

// Publish publishes an empty text through the connections of the scripts. It ends within the time limit, or soon after it,
// whatever the client's ReadTimeout is. If there is no answer, it also pings the idle connections.
func (c *Client) Publish(ctx context.Context, channel string, within time.Duration) error {
	short, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	node, err := c.Master(short, channel)
	if err != nil {
		return err
	}
	publish := withTimeout(node, within).Publish
	if c.cluster != nil {
		publish = withTimeout(node, within).SPublish
	}
	if err = publish(short, channel, "").Err(); TimedOut(err) {
		pingIdle(ctx, node)
	}
	if err != nil && Transient(err) {
		c.reload(ctx)
	}
	return err
}

// pingIdle pings the idle connections of a pool, all at once, so that the client closes dead ones. Meanwhile, calls open new ones.
func pingIdle(ctx context.Context, node redis.UniversalClient) {
	limited := withTimeout(node, pingTimeout)
	short, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	var pings sync.WaitGroup
	for range min(node.PoolStats().IdleConns, maxPinged) {
		pings.Go(func() { _ = limited.Ping(short).Err() }) // if a ping fails, the client closes the connection
	}
	pings.Wait()
}

// WithTimeout returns a Pub/Sub client of a node whose connections are opened with this timeout for replies.
func WithTimeout(node redis.UniversalClient, timeout time.Duration) redis.UniversalClient {
	return withTimeout(node, timeout)
}
