package queue

import (
	"context"
	"errors"
	"net"
	"reflect"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/internal/listen"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

const (
	// silence is how long a connection for notifications hears nothing before it is pinged: an
	// idle process costs each node 0.14 commands a second.
	silence = 7 * time.Second

	// patience is how long it waits for the answer.
	patience = 2500 * time.Millisecond
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
	*listen.Hub
	users int // guarded by registry.mu
}

// of returns the hub of a client until it is released. A client that cannot be told
// apart from others, a struct with a map for instance, has one for each script.Client.
func (r *registry) of(c *script.Client) (hub *listen.Hub, release func()) {
	var key any = c
	if reflect.ValueOf(c.Redis()).Comparable() {
		key = c.Redis()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	shared := r.hubs[key]
	if shared == nil {
		quiet := silence
		if script.OptionsOf(c.Redis()).LosesNothing {
			quiet = 0 // for ever
		}
		shared = &sharedHub{Hub: newHub(c, quiet, patience)}
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

func newHub(c *script.Client, silence, patience time.Duration) *listen.Hub {
	if cluster := c.Cluster(); cluster != nil {
		return listen.New(shards{cluster}, silence, patience)
	}
	return listen.New(&server{c.Redis()}, silence, patience)
}

// shards are the masters of a Cluster.
type shards struct{ cluster script.Cluster }

// Node implements listen.Network.
func (s shards) Node(ctx context.Context, channel string) (listen.Node, error) {
	master, err := s.cluster.MasterForKey(ctx, channel)
	return shard{master}, err
}

// Look implements listen.Network.
func (s shards) Look(ctx context.Context) { s.cluster.ReloadState(ctx) }

type shard struct{ client *redis.Client }

// Connect implements listen.Node.
func (s shard) Connect() listen.Conn {
	pubsub := s.client.SSubscribe(context.Background())
	return connection{pubsub, pubsub.SSubscribe, pubsub.SUnsubscribe}
}

// server is a single server, or what looks like one.
type server struct{ client redis.UniversalClient }

// Node implements listen.Network.
func (s *server) Node(context.Context, string) (listen.Node, error) { return s, nil }

// Look implements listen.Network.
func (s *server) Look(context.Context) {}

// Connect implements listen.Node.
func (s *server) Connect() listen.Conn {
	pubsub := s.client.Subscribe(context.Background())
	return connection{pubsub, pubsub.Subscribe, pubsub.Unsubscribe}
}

// connection is a connection to a node. A PubSub that has lost it opens another one by itself,
// but asks for all channels at once, which a Cluster refuses; so each is closed once it fails.
type connection struct {
	pubsub      *redis.PubSub
	join, leave func(ctx context.Context, channels ...string) error
}

// Join implements listen.Conn.
func (c connection) Join(ctx context.Context, channel string) error { return c.join(ctx, channel) }

// Leave implements listen.Conn.
func (c connection) Leave(ctx context.Context, channel string) error { return c.leave(ctx, channel) }

// Ping implements listen.Conn.
func (c connection) Ping(ctx context.Context) error { return c.pubsub.Ping(ctx) }

// Close implements listen.Conn.
func (c connection) Close() { _ = c.pubsub.Close() } // nothing is lost if this fails

// Receive implements listen.Conn.
func (c connection) Receive(ctx context.Context, patience time.Duration) (listen.Event, error) {
	received, err := c.pubsub.ReceiveTimeout(ctx, patience)
	switch {
	case timedOut(err):
		return listen.Event{Kind: listen.Silence}, nil
	case script.IsAnswer(err):
		return listen.Event{Kind: listen.Refused, Err: err}, nil
	case err != nil:
		return listen.Event{}, err
	}
	switch received := received.(type) {
	case *redis.Message:
		return listen.Event{Kind: listen.Message, Channel: received.Channel, Text: received.Payload}, nil
	case *redis.Subscription:
		kind := listen.Joined
		if received.Kind == "unsubscribe" || received.Kind == "sunsubscribe" {
			kind = listen.Left
		}
		return listen.Event{Kind: kind, Channel: received.Channel}, nil
	default:
		return listen.Event{Kind: listen.Pong}, nil
	}
}

func timedOut(err error) bool {
	var failure net.Error
	return errors.As(err, &failure) && failure.Timeout()
}
