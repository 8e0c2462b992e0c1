package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Listener hears when something is due earlier than a Claim has said.
type Listener struct {
	pubsub   *redis.PubSub
	client   redis.UniversalClient
	group    string
	consumer string
}

// Hint says that something may be due in a while, or, if negative, that nothing is
// scheduled.
type Hint struct {
	In time.Duration
	// Looked says that another consumer of the group has just claimed all that is due,
	// so that older hints are void. Found is how many messages that were.
	Looked bool
	Found  int
	// Grown says that the topic has got more partitions, and nothing else.
	Grown bool
}

// Listen opens a connection of its own, outside the client's pool, which lives
// until Close. A consumer is not told of its own claims.
func (g *Group) Listen(ctx context.Context, consumer string) *Listener {
	l := &Listener{client: g.client, group: g.name, consumer: consumer}
	if cluster, ok := g.client.(*redis.ClusterClient); ok {
		l.pubsub = cluster.SSubscribe(ctx, g.part.channel())
	} else {
		l.pubsub = g.client.Subscribe(ctx, g.part.channel())
	}
	return l
}

// errMoved says that a channel is on another node now, with its slot.
var errMoved = errors.New("the channel has moved to another node")

// Next blocks until there is a hint. Hints may be lost before the first one and after
// an error, which calls for a new Listener; so each begins with a hint of 0. A Close from
// another goroutine ends it with an error; its context alone does not.
func (l *Listener) Next(ctx context.Context) (Hint, error) {
	for {
		received, err := l.pubsub.Receive(ctx)
		if err != nil {
			look(ctx, l.client)
			return Hint{}, err
		}
		switch received := received.(type) {
		case *redis.Subscription:
			if received.Kind == "sunsubscribe" {
				look(ctx, l.client)
				return Hint{}, errMoved
			}
			return Hint{}, nil
		case *redis.Message:
			if hint, mine := l.parse(received.Payload); mine {
				return hint, nil
			}
		}
	}
}

// parse reads a notification, and whether it is for this consumer: "<µs>" for all
// groups, "<µs> <group>", "+" for new partitions, or
// "=<µs> <found> <bytes of group> <group><consumer>".
func (l *Listener) parse(text string) (hint Hint, mine bool) {
	if text == "+" {
		return Hint{Grown: true}, true
	}
	text, hint.Looked = strings.CutPrefix(text, "=")
	wait, who, named := strings.Cut(text, " ")
	us, err := strconv.ParseInt(wait, 10, 64)
	hint.In = time.Duration(us) * time.Microsecond
	switch {
	case err != nil:
		return hint, false
	case hint.Looked:
		found, rest, _ := strings.Cut(who, " ")
		hint.Found, _ = strconv.Atoi(found) // 0 will do
		who = rest
		own := fmt.Sprintf("%d %s%s", len(l.group), l.group, l.consumer)
		return hint, who != own && strings.HasPrefix(who, own[:len(own)-len(l.consumer)])
	default:
		return hint, !named || who == l.group
	}
}

// Close ends Next, also one under way.
func (l *Listener) Close() error {
	if err := l.pubsub.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
		return err
	}
	return nil
}
