package queue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// silence is how long a Listener hears nothing before it asks whether the connection
	// still works: one in silence costs 0.14 commands a second.
	silence = 7 * time.Second

	// patience is how long it waits for the answer.
	patience = 2500 * time.Millisecond

	// maxHint is as far ahead as a hint looks; what is due later needs none.
	maxHint = 24 * time.Hour
)

// errDeaf says that a connection has gone silently: a router or balancer between has
// forgotten it, for instance.
var errDeaf = errors.New("the connection for notifications does not answer")

// errMoved says that a channel is on another node now, with its slot.
var errMoved = errors.New("the channel has moved to another node")

// Listener hears when something is due earlier than a Claim has said.
type Listener struct {
	pubsub            *redis.PubSub
	store             *Store
	group             string
	consumer          string
	silence, patience time.Duration
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
	// Paused says that the group is told to claim nothing, and nothing else.
	Paused bool
}

// Listen opens a connection of its own, outside the client's pool, which lives
// until Close. A consumer is not told of its own claims.
func (g *Group) Listen(ctx context.Context, consumer string) *Listener {
	return &Listener{
		pubsub: g.partition.store.listen(ctx, g.partition.channel()),
		store:  g.partition.store, group: g.name, consumer: consumer, silence: silence, patience: patience,
	}
}

// Next blocks until there is a hint. Hints may be lost before the first one and after
// an error, which calls for a new Listener; so each begins with a hint of 0. A Close from
// another goroutine ends it with an error; its context alone does not.
func (l *Listener) Next(ctx context.Context) (Hint, error) {
	for {
		received, err := l.receive(ctx)
		if err != nil {
			l.store.look(ctx)
			return Hint{}, err
		}
		switch received := received.(type) {
		case *redis.Subscription:
			if received.Kind == "sunsubscribe" {
				l.store.look(ctx)
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

// receive waits for anything from the server, and asks for it after a while.
func (l *Listener) receive(ctx context.Context) (any, error) {
	received, err := l.pubsub.ReceiveTimeout(ctx, l.silence)
	if !timedOut(err) {
		return received, err
	}
	if err := l.pubsub.Ping(ctx); err != nil {
		return nil, err
	}
	received, err = l.pubsub.ReceiveTimeout(ctx, l.patience)
	if timedOut(err) {
		err = fmt.Errorf("%w: %w", errDeaf, err)
	}
	return received, err
}

func timedOut(err error) bool {
	var failure net.Error
	return errors.As(err, &failure) && failure.Timeout()
}

// parse reads a notification, and whether it is for this consumer: "<µs>" for all
// groups, "<µs> <group>", "+" for new partitions, "!<group>" for a pause, or
// "=<µs> <found> <bytes of group> <group><consumer>". Anybody may publish anything here,
// so what makes no sense is passed over or brought within bounds.
func (l *Listener) parse(text string) (hint Hint, mine bool) {
	if text == "+" {
		return Hint{Grown: true}, true
	}
	if group, paused := strings.CutPrefix(text, "!"); paused {
		return Hint{Paused: true}, group == "" || group == l.group
	}
	text, hint.Looked = strings.CutPrefix(text, "=")
	wait, who, named := strings.Cut(text, " ")
	us, err := strconv.ParseInt(wait, 10, 64)
	if err != nil {
		return Hint{}, false
	}
	if !hint.Looked {
		hint.In = within(max(us, 0))
		return hint, !named || who == l.group
	}
	found, rest, _ := strings.Cut(who, " ")
	n, _ := strconv.Atoi(found) // 0 will do
	hint.In, hint.Found = within(us), min(max(n, 0), MaxMessages)
	own := fmt.Sprintf("%d %s%s", len(l.group), l.group, l.consumer)
	return hint, rest != own && strings.HasPrefix(rest, own[:len(own)-len(l.consumer)])
}

// within is a number of microseconds as a Hint has it.
func within(us int64) time.Duration {
	if us < 0 {
		return -1
	}
	return time.Duration(min(us, maxHint.Microseconds())) * time.Microsecond
}

// Close ends Next, also one under way.
func (l *Listener) Close() error {
	if err := l.pubsub.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
		return err
	}
	return nil
}
