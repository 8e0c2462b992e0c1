package queue

import (
	"context"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/internal/notify"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// maxHint is how far ahead a hint may be; messages due later need none.
const maxHint = 24 * time.Hour

// Hint says how soon a message may be due; if In is negative, none is scheduled.
type Hint struct {
	In time.Duration
	// Claimed means that another consumer of the group has just claimed all due messages, so older
	// hints are void. Found is the number of messages that it claimed.
	Claimed bool
	Found   int
	// ForGroup means that the hint is for this group only.
	ForGroup bool
	// Grown means that the topic has more partitions. The hint says nothing else.
	Grown bool
	// Paused means that the group is paused. The hint says nothing else.
	Paused bool
	// Opened means that notifications are received from now on. Earlier ones may be lost, so In is 0.
	Opened bool
}

// HintHandler receives the hints for a consumer. Its methods must not block, because all
// subscriptions of a client share one goroutine, and they must not call the Listener. They are not
// called concurrently, nor after Close.
type HintHandler interface {
	OnHint(hint Hint)
	// OnError is called with the reason when an attempt to receive notifications fails. More
	// attempts follow until OnHint is called with Hint.Opened.
	OnError(err error)
}

// Listener is a HintHandler's registration. Hints report messages that are due earlier than a Claim
// said.
type Listener struct {
	*notify.Listener
	release func()
}

// Close removes the HintHandler. The last Close of a client and interval waits until the connections for
// notifications are closed.
func (l *Listener) Close() {
	l.Listener.Close()
	l.release()
}

// Listen registers a HintHandler for a consumer of the group. The handler gets no hints about the
// consumer's own claims. All Listeners of a client with the same heartbeat interval share one
// connection to each node, outside the client's pool. Listen does no I/O.
func (g *Group) Listen(consumer string, interval time.Duration, handler HintHandler) *Listener {
	hub, release := hubs.of(g.partition.Client(), interval)
	return &Listener{hub.Listen(g.partition.Channel(), &notificationReader{g.name, consumer, handler}), release}
}

// notificationReader is a notify.Handler.
type notificationReader struct {
	group    string
	consumer string
	handler  HintHandler
}

func (n *notificationReader) OnOpen()           { n.handler.OnHint(Hint{Opened: true}) }
func (n *notificationReader) OnError(err error) { n.handler.OnError(err) }

func (n *notificationReader) OnMessage(text string) {
	if hint, mine := n.parse(text); mine {
		n.handler.OnHint(hint)
	}
}

// parse reads a notification, and reports whether it is for this consumer: "<µs>" for all groups,
// "<µs> <group>", "+" for new partitions, "!<group>" for a pause, or "=<µs> <found> <bytes of
// group> <group><consumer>". Any program may publish here, so invalid texts are ignored, and
// numbers are limited.
func (n *notificationReader) parse(text string) (hint Hint, mine bool) {
	if text == "+" {
		return Hint{Grown: true}, true
	}
	if group, paused := strings.CutPrefix(text, "!"); paused {
		return Hint{Paused: true}, group == "" || group == n.group
	}
	text, hint.Claimed = strings.CutPrefix(text, "=")
	wait, who, named := strings.Cut(text, " ")
	us, err := strconv.ParseInt(wait, 10, 64)
	if err != nil {
		return Hint{}, false
	}
	if !hint.Claimed {
		hint.In = within(max(us, 0))
		hint.ForGroup = named
		return hint, !named || who == n.group
	}
	found, rest, _ := strings.Cut(who, " ")
	count, _ := strconv.Atoi(found) // 0 will do
	hint.In, hint.Found = within(us), min(max(count, 0), MaxMessages)
	own := fmt.Sprintf("%d %s%s", len(n.group), n.group, n.consumer)
	return hint, rest != own && strings.HasPrefix(rest, own[:len(own)-len(n.consumer)])
}

// within converts microseconds to the time of a Hint.
func within(us int64) time.Duration {
	if us < 0 {
		return -1
	}
	return time.Duration(min(us, maxHint.Microseconds())) * time.Microsecond
}

// hubs has the hubs of all clients that have listeners. It is global because subscribers, of which
// Watermill makes one for each handler, have only their client in common. Unused hubs are removed.
var hubs = hubSet{hubs: map[hubKey]*sharedHub{}}

type hubSet struct {
	mu   sync.Mutex
	hubs map[hubKey]*sharedHub // guarded by mu
}

type hubKey struct {
	client   any
	interval time.Duration
}

type sharedHub struct {
	*notify.Hub
	users int // guarded by hubSet.mu
}

// of returns the hub of a client and an interval until it is released. If a client cannot be distinguished
// from others, such as a struct with a map, each script.Client has its own hub.
func (s *hubSet) of(c *script.Client, interval time.Duration) (hub *notify.Hub, release func()) {
	key := hubKey{c, interval}
	if reflect.ValueOf(c.Redis()).Comparable() {
		key.client = c.Redis()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	shared := s.hubs[key]
	if shared == nil {
		shared = &sharedHub{Hub: newHub(c, interval, notify.Timeout)}
		s.hubs[key] = shared
	}
	shared.users++
	return shared.Hub, sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if shared.users--; shared.users == 0 {
			delete(s.hubs, key)
		}
	})
}

func newHub(c *script.Client, interval, timeout time.Duration) *notify.Hub {
	if c.Cluster() != nil {
		return notify.New(shards{c}, interval, timeout)
	}
	return notify.New(&server{c}, interval, timeout)
}

// connectTimeout is how long the handshake of a connection for notifications may wait for a reply.
const connectTimeout = 3 * time.Second

// publish is notify.Network's Publish.
func publish(ctx context.Context, c *script.Client, channel string, timeout time.Duration) (refused bool, err error) {
	err = c.Publish(ctx, channel, timeout)
	return script.IsAnswer(err) && !script.Transient(err), err
}

// shards are the masters of a Cluster.
type shards struct{ client *script.Client }

// Node implements notify.Network.
func (s shards) Node(ctx context.Context, channel string) (notify.Node, error) {
	master, err := s.client.Cluster().MasterForKey(ctx, channel)
	return shard{master}, err
}

// Refresh implements notify.Network.
func (s shards) Refresh(ctx context.Context) { s.client.Cluster().ReloadState(ctx) }

// Publish implements notify.Network.
func (s shards) Publish(ctx context.Context, channel string, timeout time.Duration) (refused bool, err error) {
	return publish(ctx, s.client, channel, timeout)
}

type shard struct{ master *redis.Client }

// Connect implements notify.Node.
func (s shard) Connect() notify.Conn {
	pubsub := script.WithTimeout(s.master, connectTimeout).SSubscribe(context.Background())
	return connection{pubsub, pubsub.SSubscribe, pubsub.SUnsubscribe}
}

// server is a single server, or a proxy or service that looks like one.
type server struct{ client *script.Client }

// Node implements notify.Network.
func (s *server) Node(context.Context, string) (notify.Node, error) { return s, nil }

// Refresh implements notify.Network.
func (s *server) Refresh(context.Context) {}

// Publish implements notify.Network.
func (s *server) Publish(ctx context.Context, channel string, timeout time.Duration) (refused bool, err error) {
	return publish(ctx, s.client, channel, timeout)
}

// Connect implements notify.Node.
func (s *server) Connect() notify.Conn {
	pubsub := script.WithTimeout(s.client.Redis(), connectTimeout).Subscribe(context.Background())
	return connection{pubsub, pubsub.Subscribe, pubsub.Unsubscribe}
}

// connection is a connection to a node. It is closed once it fails, because a PubSub that
// reconnects by itself subscribes to all channels in one command, which a Cluster refuses.
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

// Close implements notify.Conn.
func (c connection) Close() { _ = c.pubsub.Close() } // nothing is lost if this fails

// Receive implements notify.Conn.
func (c connection) Receive(ctx context.Context) (notify.Event, error) {
	received, err := c.pubsub.Receive(ctx)
	switch {
	case script.IsAnswer(err):
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
		return notify.Event{Kind: notify.Other}, nil
	}
}
