package queue

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

// Store is everything that a prefix has in one Redis. It is safe for concurrent use.
type Store struct {
	// immutable
	client      redis.UniversalClient
	prefix      string
	observer    observe.Observer
	cluster     cluster // the client again, if it is for a Cluster; else nil
	db          int
	readTimeout time.Duration
	tls         bool
	calls       *calls
	now         func() time.Time

	checked  atomic.Bool // no check is left to do
	mu       sync.Mutex
	checking *checking          // guarded by mu; the check under way
	version  string             // guarded by mu; what the server says it is
	warnings []string           // guarded by mu; not returned yet
	listed   map[string]listing // guarded by mu; up to maxListed topics whose version is understood
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

	sound interface{ NeverDeaf() }
)

// NeverDeaf tells whether the connections of a client lose no notification as long as they
// last: those of package redisdelaytest, whose virtual months are no time for pings and polls.
func NeverDeaf(client redis.UniversalClient) bool {
	_, is := client.(sound)
	return is
}

// Why a client cannot be used.
var (
	errRing = errors.New("is a redis.Ring: while a shard is away, its topics move to another one " +
		"and their messages are orphaned; use a Cluster or Sentinel")
	errPartOfCluster = errors.New("has the options of a Cluster client and not its MasterForKey and ReloadState; " +
		"embed *redis.ClusterClient, or forward them")
)

// NewStore returns what a prefix has in the Redis of a client. It does no I/O. The
// observer sees each call. The error says why the client cannot be used.
func NewStore(client redis.UniversalClient, prefix string, observer observe.Observer) (*Store, error) {
	s := &Store{
		client: client, prefix: prefix, observer: observer, calls: newCalls(), now: time.Now, listed: map[string]listing{},
	}
	switch c := client.(type) {
	case ring:
		return nil, errRing
	case singleNode:
		o := c.Options()
		s.db, s.readTimeout, s.tls = o.DB, o.ReadTimeout, o.TLSConfig != nil
	case cluster: // has one database, 0
		o := c.Options()
		s.cluster, s.readTimeout, s.tls = c, o.ReadTimeout, o.TLSConfig != nil
	case clusterOptions:
		return nil, errPartOfCluster
	default:
		return nil, fmt.Errorf("is a %T, which does not tell whether it is for a single node or a Cluster; "+
			"embed *redis.Client or *redis.ClusterClient instead of the interface, or forward "+
			"Options and, for a Cluster, MasterForKey and ReloadState", client)
	}
	return s, nil
}

// Topic returns a topic. It does no I/O.
func (s *Store) Topic(name string) *Topic {
	return &Topic{store: s, name: name, taught: 1}
}

// ReadTimeout is how long the client waits for a reply; 0 or less if it has no limit.
func (s *Store) ReadTimeout() time.Duration { return s.readTimeout }

// Why a call may not have ended in time.
var (
	errNoAnswer     = errors.New("no answer from Redis")
	errNoConnection = errors.New("no connection to Redis could be opened")
	errNoHandshake  = errors.New("no connection to Redis could be opened; does its port expect TLS?")
)

// Silence explains a call that has not ended in time, as far as that is known: the client
// itself says no more, even when a server without TLS waits for the end of a handshake.
func (s *Store) Silence() error {
	switch {
	case s.client.PoolStats().TotalConns > 0:
		return errNoAnswer
	case s.tls:
		return errNoHandshake
	default:
		return errNoConnection
	}
}

// master is a client of the node that has a key: a Cluster client may send a command
// that only reads to a replica, and one without a key to any node.
func (s *Store) master(ctx context.Context, key string) (redis.UniversalClient, error) {
	if s.cluster == nil {
		return s.client, nil
	}
	return s.cluster.MasterForKey(ctx, key)
}

// look makes a Cluster client look up the masters at once: after a refused dial it would
// keep its old view.
func (s *Store) look(ctx context.Context) {
	if s.cluster != nil {
		s.cluster.ReloadState(ctx)
	}
}

// form is the form of a script for the server.
func (s *Store) form(of *script) *redis.Script {
	if s.cluster != nil {
		return of.sharded
	}
	return of.plain
}
