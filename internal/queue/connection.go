package queue

import (
	"context"
	"errors"
	"net"
	"reflect"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/internal/notify"
)

const (
	// pingAfter is how long a connection for notifications may receive nothing before it is
	// pinged: an idle process costs each node 0.14 commands a second.
	pingAfter = 7 * time.Second

	// pingTimeout is how long to wait for the answer.
	pingTimeout = 2500 * time.Millisecond
)

// hubs has the hubs of all clients that somebody listens with. It is global, since subscribers
// have nothing in common but their client, and Watermill makes one for each handler. Only what
// is in use is in it.
var hubs = registry{hubs: map[any]*sharedHub{}}

type registry struct {
	mu   sync.Mutex
	hubs map[any]*sharedHub // guarded by mu; by client
}

type sharedHub struct {
	*notify.Hub
	users int // guarded by registry.mu
}

// of returns the hub of a store's client until it is released. A client that cannot be told
// apart from others, a struct with a map for instance, has one for each Store.
func (r *registry) of(s *Store) (hub *notify.Hub, release func()) {
	var key any = s
	if reflect.ValueOf(s.client).Comparable() {
		key = s.client
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	shared := r.hubs[key]
	if shared == nil {
		quiet := pingAfter
		if NeverDeaf(s.client) {
			quiet = 0 // for ever
		}
		shared = &sharedHub{Hub: newHub(s, quiet, pingTimeout)}
		r.hubs[key] = shared
	}
	shared.users++
	return shared.Hub, sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if shared.users--; shared.users == 0 {
			delete(r.hubs, key)
		}
	})
}

func newHub(s *Store, pingAfter, pingTimeout time.Duration) *notify.Hub {
	if s.cluster != nil {
		return notify.New(shards{s.cluster}, pingAfter, pingTimeout)
	}
	return notify.New(&server{s.client}, pingAfter, pingTimeout)
}

// shards are the masters of a Cluster.
type shards struct{ cluster cluster }

// Node implements notify.Network.
func (s shards) Node(ctx context.Context, channel string) (notify.Node, error) {
	master, err := s.cluster.MasterForKey(ctx, channel)
	return shard{master}, err
}

// Refresh implements notify.Network.
func (s shards) Refresh(ctx context.Context) { s.cluster.ReloadState(ctx) }

type shard struct{ client *redis.Client }

// Connect implements notify.Node.
func (s shard) Connect() notify.Conn {
	pubsub := s.client.SSubscribe(context.Background())
	return connection{pubsub, pubsub.SSubscribe, pubsub.SUnsubscribe}
}

// server is a single server, or what looks like one.
type server struct{ client redis.UniversalClient }

// Node implements notify.Network.
func (s *server) Node(context.Context, string) (notify.Node, error) { return s, nil }

// Refresh implements notify.Network.
func (s *server) Refresh(context.Context) {}

// Connect implements notify.Node.
func (s *server) Connect() notify.Conn {
	pubsub := s.client.Subscribe(context.Background())
	return connection{pubsub, pubsub.Subscribe, pubsub.Unsubscribe}
}

// connection is a connection to a node. A PubSub that has lost it opens another one by itself,
// but asks for all channels at once, which a Cluster refuses; so each is closed once it fails.
type connection struct {
	pubsub                 *redis.PubSub
	subscribe, unsubscribe func(ctx context.Context, channels ...string) error
}

// Subscribe implements notify.Conn.
func (c connection) Subscribe(ctx context.Context, channel string) error {
	return c.subscribe(ctx, channel)
}

// Unsubscribe implements notify.Conn.
func (c connection) Unsubscribe(ctx context.Context, channel string) error {
	return c.unsubscribe(ctx, channel)
}

// Ping implements notify.Conn.
func (c connection) Ping(ctx context.Context) error { return c.pubsub.Ping(ctx) }

// Close implements notify.Conn.
func (c connection) Close() { _ = c.pubsub.Close() } // nothing is lost if this fails

// Receive implements notify.Conn.
func (c connection) Receive(ctx context.Context, timeout time.Duration) (notify.Event, error) {
	received, err := c.pubsub.ReceiveTimeout(ctx, timeout)
	switch {
	case timedOut(err):
		return notify.Event{Kind: notify.Timeout}, nil
	case isAnswer(err):
		return notify.Event{Kind: notify.Refused, Err: err}, nil
	case err != nil:
		return notify.Event{}, err
	}
	switch received := received.(type) {
	case *redis.Message:
		return notify.Event{Kind: notify.Message, Channel: received.Channel, Text: received.Payload}, nil
	case *redis.Subscription:
		kind := notify.Subscribed
		if received.Kind == "unsubscribe" || received.Kind == "sunsubscribe" {
			kind = notify.Unsubscribed
		}
		return notify.Event{Kind: kind, Channel: received.Channel}, nil
	default:
		return notify.Event{Kind: notify.Pong}, nil
	}
}

func timedOut(err error) bool {
	var failure net.Error
	return errors.As(err, &failure) && failure.Timeout()
}
