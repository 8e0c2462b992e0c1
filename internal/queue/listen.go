package queue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/internal/listen"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// maxHint is how far ahead a hint looks; messages due later need none.
const maxHint = 24 * time.Hour

// Hint says in how long a message may be due; if negative, none is scheduled.
type Hint struct {
	In time.Duration
	// Looked says that another consumer of the group has just claimed all due messages,
	// so older hints are void. Found is how many messages it claimed.
	Looked bool
	Found  int
	// Grown says only that the topic has more partitions now.
	Grown bool
	// Paused says only that the group is paused.
	Paused bool
	// Opened says that notifications are heard from now on. Earlier ones may be lost, so In
	// is 0.
	Opened bool
}

// Ear gets the hints for a consumer. Its methods must not block, since all subscriptions of a
// client share them, nor call the Listener. They are not called concurrently, nor after Close.
type Ear interface {
	Heard(hint Hint)
	// Failed says why an attempt to hear notifications has ended. More follow, until one
	// begins with Hint.Opened.
	Failed(err error)
}

// Listener is where a consumer hears when a message is due earlier than a Claim said.
type Listener struct {
	*listen.Listener
	release func()
}

// Close ends the listening. The last one of a client waits until the connections for
// notifications are closed.
func (l *Listener) Close() {
	l.Listener.Close()
	l.release()
}

// Listen makes an Ear hear the hints for a consumer of the group, which does not hear of its
// own claims. All that listen with one client share a connection to each node, which is none
// of the client's pool. Listen does no I/O.
func (g *Group) Listen(consumer string, ear Ear) *Listener {
	hub, release := hubs.of(g.partition.Client())
	return &Listener{hub.Listen(g.partition.Channel(), &hearing{g.name, consumer, ear}), release}
}

// hearing is a listen.Ear.
type hearing struct {
	group    string
	consumer string
	ear      Ear
}

func (h *hearing) Opened()          { h.ear.Heard(Hint{Opened: true}) }
func (h *hearing) Failed(err error) { h.ear.Failed(err) }

func (h *hearing) Heard(text string) {
	if hint, mine := h.parse(text); mine {
		h.ear.Heard(hint)
	}
}

// parse reads a notification and whether it is for this consumer: "<µs>" for all
// groups, "<µs> <group>", "+" for new partitions, "!<group>" for a pause, or
// "=<µs> <found> <bytes of group> <group><consumer>". Anybody may publish anything here,
// so nonsense is ignored or brought within bounds.
func (h *hearing) parse(text string) (hint Hint, mine bool) {
	if text == "+" {
		return Hint{Grown: true}, true
	}
	if group, paused := strings.CutPrefix(text, "!"); paused {
		return Hint{Paused: true}, group == "" || group == h.group
	}
	text, hint.Looked = strings.CutPrefix(text, "=")
	wait, who, named := strings.Cut(text, " ")
	us, err := strconv.ParseInt(wait, 10, 64)
	if err != nil {
		return Hint{}, false
	}
	if !hint.Looked {
		hint.In = within(max(us, 0))
		return hint, !named || who == h.group
	}
	found, rest, _ := strings.Cut(who, " ")
	n, _ := strconv.Atoi(found) // 0 will do
	hint.In, hint.Found = within(us), min(max(n, 0), MaxMessages)
	own := fmt.Sprintf("%d %s%s", len(h.group), h.group, h.consumer)
	return hint, rest != own && strings.HasPrefix(rest, own[:len(own)-len(h.consumer)])
}

// within converts microseconds for a Hint.
func within(us int64) time.Duration {
	if us < 0 {
		return -1
	}
	return time.Duration(min(us, maxHint.Microseconds())) * time.Microsecond
}

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
