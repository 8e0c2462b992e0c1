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
	// silence is how long a Listener hears nothing before it checks the connection: a
	// silent one costs 0.14 commands a second.
	silence = 7 * time.Second

	// patience is how long it waits for the answer.
	patience = 2500 * time.Millisecond

	// maxHint is how far ahead a hint looks; messages due later need none.
	maxHint = 24 * time.Hour
)

// errDeaf says that a connection was lost without a sign: a router or load balancer on
// the way may have forgotten it.
var errDeaf = errors.New("the connection for notifications does not answer")

// errMoved says that a channel has moved to another node with its slot.
var errMoved = errors.New("the channel has moved to another node")

// Listener hears when a message is due earlier than a Claim said.
type Listener struct {
	pubsub            *redis.PubSub
	store             *Store
	group             string
	consumer          string
	silence, patience time.Duration
}

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
}

// Listen opens a connection of its own, outside the client's pool, until Close. A
// consumer does not hear of its own claims.
func (g *Group) Listen(ctx context.Context, consumer string) *Listener {
	l := &Listener{
		pubsub: g.partition.store.listen(ctx, g.partition.channel()),
		store:  g.partition.store, group: g.name, consumer: consumer, silence: silence, patience: patience,
	}
	if NeverDeaf(g.partition.store.client) {
		l.silence = 0 // for ever
	}
	return l
}

// Next blocks until there is a hint. After an error, use a new Listener. Hints may be
// lost before the first one, so each Listener begins with a hint of 0. A Close from
// another goroutine ends Next with an error; the end of its context alone does not.
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

// receive waits for anything from the server, and pings it after a while.
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

// parse reads a notification and whether it is for this consumer: "<µs>" for all
// groups, "<µs> <group>", "+" for new partitions, "!<group>" for a pause, or
// "=<µs> <found> <bytes of group> <group><consumer>". Anybody may publish anything here,
// so nonsense is ignored or brought within bounds.
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

// within converts microseconds for a Hint.
func within(us int64) time.Duration {
	if us < 0 {
		return -1
	}
	return time.Duration(min(us, maxHint.Microseconds())) * time.Microsecond
}

// Close ends Next, even one under way.
func (l *Listener) Close() error {
	if err := l.pubsub.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
		return err
	}
	return nil
}
