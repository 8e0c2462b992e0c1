package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Client is a go-redis client and what is known about the server behind it. It is
// safe for concurrent use.
type Client struct {
	redis.UniversalClient

	// immutable
	cluster     cluster // nil for a single node
	db          int
	readTimeout time.Duration
	tls         bool

	checked  atomic.Bool // nothing is left to check
	mu       sync.Mutex
	checking *checking // guarded by mu; the check under way
	version  string    // guarded by mu; what the server says it is
	run      string    // guarded by mu; its id, anew with each start
	warnings []string  // guarded by mu; not told yet
}

// What clients can do. Users wrap the types of go-redis, so methods decide, not types.
type (
	singleNode interface{ Options() *redis.Options }

	cluster interface {
		Options() *redis.ClusterOptions
		MasterForKey(ctx context.Context, key string) (*redis.Client, error)
		ReloadState(ctx context.Context)
	}

	clusterOptions interface{ Options() *redis.ClusterOptions }

	ring interface{ Options() *redis.RingOptions }
)

// Why a client cannot be used.
var (
	errRing = errors.New("is a redis.Ring: while a shard is away, its topics move to another one " +
		"and their messages are orphaned; use a Cluster or Sentinel")
	errPartOfCluster = errors.New("has the options of a Cluster client and not its MasterForKey and ReloadState; " +
		"embed *redis.ClusterClient, or forward them")
)

// NewClient finds out what kind of client it is given. It does no I/O. The error says
// why the client cannot be used.
func NewClient(client redis.UniversalClient) (*Client, error) {
	switch c := client.(type) {
	case ring:
		return nil, errRing
	case singleNode:
		o := c.Options()
		return &Client{UniversalClient: client, db: o.DB, readTimeout: o.ReadTimeout, tls: o.TLSConfig != nil}, nil
	case cluster: // has one database, 0
		o := c.Options()
		return &Client{UniversalClient: client, cluster: c, readTimeout: o.ReadTimeout, tls: o.TLSConfig != nil}, nil
	case clusterOptions:
		return nil, errPartOfCluster
	default:
		return nil, fmt.Errorf("is a %T, which does not tell whether it is for a single node or a Cluster; "+
			"embed *redis.Client or *redis.ClusterClient instead of the interface, or forward "+
			"Options and, for a Cluster, MasterForKey and ReloadState", client)
	}
}

// ReadTimeout is how long the client waits for a reply; 0 or less if it has no limit.
func (c *Client) ReadTimeout() time.Duration { return c.readTimeout }

// What is known of a call that has not ended in time.
var (
	errNoAnswer     = errors.New("no answer from Redis")
	errNoConnection = errors.New("no connection to Redis could be opened")
	errNoHandshake  = errors.New("no connection to Redis could be opened; does its port expect TLS?")
)

// Silence says what is known of a call that has not ended in time: the client itself tells
// no more than that, even when a server without TLS waits for the end of a handshake.
func (c *Client) Silence() error {
	switch {
	case c.PoolStats().TotalConns > 0:
		return errNoAnswer
	case c.tls:
		return errNoHandshake
	default:
		return errNoConnection
	}
}

// master is a client of the node that has a key: a Cluster client may send a command
// that only reads to a replica, and one without a key to any node.
func (c *Client) master(ctx context.Context, key string) (redis.UniversalClient, error) {
	if c.cluster == nil {
		return c.UniversalClient, nil
	}
	return c.cluster.MasterForKey(ctx, key)
}

// look has a Cluster client find out at once who the masters are: after a dial that is
// refused it would go on with its old view.
func (c *Client) look(ctx context.Context) {
	if c.cluster != nil {
		c.cluster.ReloadState(ctx)
	}
}

// channel is where scripts announce that something in a partition is due earlier than
// before. It names the database, which Pub/Sub knows nothing of.
func (c *Client) channel(p partition) string { return string(p) + ":wake:" + strconv.Itoa(c.db) }

// listen subscribes to a channel.
func (c *Client) listen(ctx context.Context, channel string) *redis.PubSub {
	if c.cluster != nil {
		return c.SSubscribe(ctx, channel)
	}
	return c.Subscribe(ctx, channel)
}

// script returns the form of a script for the server.
func (c *Client) script(s script) *redis.Script {
	if c.cluster != nil {
		return s.sharded
	}
	return s.plain
}
