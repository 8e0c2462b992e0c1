// Package script runs Lua scripts on the keys of topics: it names the keys, sends the calls to a server
// or to the nodes of a Cluster, repeats them where that is safe, reads the replies, and explains the
// errors. It does not know what the scripts mean; packages queue and inspect do.
package script

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/observe"
)

// Client runs scripts on the keys of one prefix in one Redis. It is safe for concurrent use.
type Client struct {
	// immutable
	redis       redis.UniversalClient
	prefix      string
	observer    observe.Observer
	cluster     Cluster // the same client if it is for a Cluster; else nil
	db          int
	readTimeout time.Duration
	tls         bool
	calls       *calls

	endedTooSoon atomic.Int64 // when the client's ReadTimeout last ended a call that could have taken longer, in Unix nanoseconds

	checked  atomic.Bool // all checks are done
	checking Shared
	mu       sync.Mutex
	version  string   // guarded by mu; as the server reports it
	warnings []string // guarded by mu; not returned yet
}

// Capabilities of clients. They are interfaces because users wrap the types of go-redis.
type (
	singleNode interface{ Options() *redis.Options }

	// Cluster is a client for a Cluster.
	Cluster interface {
		Options() *redis.ClusterOptions
		MasterForKey(ctx context.Context, key string) (*redis.Client, error)
		ReloadState(ctx context.Context)
	}

	clusterOptions interface{ Options() *redis.ClusterOptions }

	ring interface{ Options() *redis.RingOptions }
)

// Why a client is unsupported.
var (
	errRing = errors.New("is a redis.Ring: while a shard is down, its topics move to another one " +
		"and their messages are orphaned; use a Cluster or Sentinel")
	errPartOfCluster = errors.New("has the options of a Cluster client and not its MasterForKey and ReloadState; " +
		"embed *redis.ClusterClient, or forward them")
)

// CheckClient reports why a client is unsupported.
func CheckClient(client redis.UniversalClient) error {
	switch client.(type) {
	case singleNode, Cluster:
		return nil
	case ring:
		return errRing
	case clusterOptions:
		return errPartOfCluster
	default:
		return fmt.Errorf("is a %T, which does not report whether it is for a single node or a Cluster; "+
			"embed *redis.Client or *redis.ClusterClient instead of the interface, or forward "+
			"Options and, for a Cluster, MasterForKey and ReloadState", client)
	}
}

// NewClient returns a Client for the keys of a prefix, from a client that CheckClient accepts. It does no I/O. The
// observer sees each call.
func NewClient(client redis.UniversalClient, prefix string, observer observe.Observer) *Client {
	made := &Client{
		redis: client, prefix: prefix, observer: observer, calls: newCalls(),
	}
	switch c := client.(type) {
	case singleNode:
		o := c.Options()
		made.db, made.readTimeout, made.tls = o.DB, o.ReadTimeout, o.TLSConfig != nil
	case Cluster: // has one database, 0
		o := c.Options()
		made.cluster, made.readTimeout, made.tls = c, o.ReadTimeout, o.TLSConfig != nil
	}
	return made
}

// ReadTimeout is how long the client waits for a reply; 0 or less if it has no limit.
func (c *Client) ReadTimeout() time.Duration { return c.readTimeout }

// Why a call may not have ended in time.
var (
	errNoAnswer     = errors.New("no answer from Redis")
	errNoConnection = errors.New("no connection to Redis could be opened")
	errNoHandshake  = errors.New("no connection to Redis could be opened; does its port expect TLS?")
)

// WhyNoAnswer explains a call that has not ended in time, as far as the cause is known. The
// client's error says less, even when a server without TLS waits for the end of a handshake.
func (c *Client) WhyNoAnswer() error {
	switch {
	case c.redis.PoolStats().TotalConns > 0:
		return errNoAnswer
	case c.tls:
		return errNoHandshake
	default:
		return errNoConnection
	}
}

// Master returns a client of the node that has a key: a Cluster client may send a command that only
// reads to a replica, and a command without a key to any node.
func (c *Client) Master(ctx context.Context, key string) (redis.UniversalClient, error) {
	if c.cluster == nil {
		return c.redis, nil
	}
	return c.cluster.MasterForKey(ctx, key)
}

// Redis returns the client that the scripts use.
func (c *Client) Redis() redis.UniversalClient { return c.redis }

// Cluster returns the same client if it is for a Cluster; else nil.
func (c *Client) Cluster() Cluster { return c.cluster }

// reload makes a Cluster client look up the masters now: after a refused dial, it would keep its
// old view.
func (c *Client) reload(ctx context.Context) {
	if c.cluster != nil {
		c.cluster.ReloadState(ctx)
	}
}

// form returns the form of a script for the server.
func (c *Client) form(of *Script) *redis.Script {
	if c.cluster != nil {
		return of.sharded
	}
	return of.plain
}
