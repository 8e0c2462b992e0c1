// Package delivery runs one subscription: it claims messages of a consumer group,
// hands them out, keeps their leases and settles them. It knows nothing of Redis
// beyond the operations of a Group.
//
// A subscription consists of these goroutines, all started and waited for by Run:
//
//	fetch    claims messages into the buffer           (fetch.go)
//	listen   hears when to claim earlier               (fetch.go)
//	work     hands messages out, MaxInFlight of them   (work.go)
//	settle   sends acks, nacks and the like            (settle.go)
//	extend   keeps the leases of all that is held      (leases.go)
//	guard    ends what could not be extended in time   (leases.go)
package delivery

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// closeGrace is how long beyond CloseTimeout a subscription may take to tell
// Redis what it gives back.
const closeGrace = 500 * time.Millisecond

var (
	// ErrLeaseLost says that another consumer may have the message by now.
	ErrLeaseLost = errors.New("redisdelay: the lease of the message is lost")
	// ErrCloseTimeout says that a handler took longer than CloseTimeout to end.
	ErrCloseTimeout = errors.New("redisdelay: the subscription was closed and its handler took too long")

	errUnsettled = errors.New("redis did not answer in time for all acks and messages to give back")
)

// Group is the consumer group that a subscription is part of. See queue.Group.
type Group interface {
	Claim(ctx context.Context, r queue.Request) (queue.Claims, error)
	Ack(ctx context.Context, ids []string) ([]string, error)
	Nack(ctx context.Context, maxDeliveries int, nacks []queue.Nack) ([]string, error)
	Extend(ctx context.Context, lease time.Duration, held []queue.Delivery) ([]string, error)
	Release(ctx context.Context, releases []queue.Release) ([]string, error)
	Bury(ctx context.Context, burials []queue.Burial) ([]string, error)
}

// Listener hears when a group has messages earlier than a claim has said. See
// queue.Listener.
type Listener interface {
	Next(ctx context.Context) (time.Duration, error)
	Close() error
}

// Config is what a subscription works with. All fields are required but
// MaxDeliveries.
type Config struct {
	Group  Group
	Listen func(ctx context.Context) Listener

	// Decode makes the message to hand out, with ctx as the base of its context.
	Decode func(ctx context.Context, m queue.Claimed) (*message.Message, error)
	// Redelivery says how to nack a message that was handed out with ctx. The nack
	// is good even if there is an error to tell.
	Redelivery func(ctx context.Context, msg *message.Message) (queue.Nack, error)

	Consumer      string // unique to this subscription
	MaxInFlight   int
	Lease         time.Duration
	MaxDeliveries int
	PollInterval  time.Duration
	CloseTimeout  time.Duration
	Logger        watermill.LoggerAdapter
}

// Subscription delivers messages from Run until its context ends.
type Subscription struct {
	// immutable
	config  Config
	out     chan *message.Message
	turns   *backoff.Turns // for all that fails and is tried again
	leases  *leases
	settler *settler

	// buffer holds what is claimed and not handed out, in order. fetch sends and
	// never blocks on it; workers receive.
	buffer chan *item
	// room tells fetch that outstanding has sunk to low.
	room chan struct{}
	// abandon is closed when handlers have had their time to finish.
	abandon chan struct{}

	pace        pace
	outstanding atomic.Int64 // messages in the buffer and at the workers
	low         atomic.Int64 // set by fetch: when to signal room
	filled      time.Time    // owned by fetch; when it last put messages into the buffer

	hints hints
}

// item is one claimed message.
type item struct {
	queue.Claimed
	trusted time.Time               // guarded by leases.mu; until when the lease is certain
	lost    bool                    // guarded by leases.mu
	cancel  context.CancelCauseFunc // guarded by leases.mu; set once it is handed out
}

func (it *item) delivery() queue.Delivery { return queue.Delivery{ID: it.ID, Token: it.Token} }

// New prepares a subscription; Run starts it.
func New(config Config) *Subscription {
	turns := backoff.NewTurns(minBackoff)
	s := &Subscription{
		config:  config,
		out:     make(chan *message.Message),
		turns:   turns,
		leases:  newLeases(config, turns),
		buffer:  make(chan *item, 2*maxClaim+config.MaxInFlight),
		room:    make(chan struct{}, 1),
		abandon: make(chan struct{}),
		hints:   newHints(),
	}
	s.settler = newSettler(config, s.leases, turns, func(dueIn time.Duration, due bool) {
		if due {
			s.hints.add(dueIn)
		}
		s.signalRoom()
	})
	return s
}

// Messages is where messages are handed out. Run closes it.
func (s *Subscription) Messages() <-chan *message.Message { return s.out }

// Run delivers messages until ctx ends. Then it gives back what was not handed
// out, waits CloseTimeout for the rest, gives that back too, and returns. The
// error says that Redis could not be told everything; a call that the client has
// not ended by then ends on its own.
func (s *Subscription) Run(ctx context.Context) error {
	// Calls to Redis outlive ctx: a claim under way must be given back, and acks
	// must arrive.
	calls, cancelCalls := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelCalls()

	fetched, settled, kept := make(chan struct{}), make(chan struct{}), make(chan struct{})
	drained := make(chan struct{}) // closed when nothing more will need settling
	go closeAfter(fetched, func() { s.fetch(ctx, calls) })
	go closeAfter(settled, func() { s.settler.run(calls, drained) })
	go closeAfter(kept, func() {
		var keepers sync.WaitGroup
		keepers.Go(func() { s.listen(ctx) })
		keepers.Go(func() { s.leases.extend(calls) })
		keepers.Go(func() { s.leases.guard(calls) })
		keepers.Wait()
	})
	var workers sync.WaitGroup
	for range s.config.MaxInFlight {
		workers.Go(func() { s.work(ctx) })
	}

	<-ctx.Done()
	hard, cancelHard := context.WithTimeout(calls, s.config.CloseTimeout+closeGrace)
	defer cancelHard()
	soft := time.AfterFunc(s.config.CloseTimeout, func() { close(s.abandon) })
	workers.Wait() // each ends with its message, at abandon at the latest
	soft.Stop()
	complete := ended(hard, fetched)
	close(drained)
	complete = ended(hard, settled) && complete
	close(s.out)
	cancelCalls()
	if ended(hard, kept); !complete {
		return errUnsettled
	}
	return nil
}

func closeAfter(done chan<- struct{}, do func()) {
	defer close(done)
	do()
}

// ended waits for a goroutine, but not longer than ctx.
func ended(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
