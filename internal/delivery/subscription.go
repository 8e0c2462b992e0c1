// Package delivery runs one subscription: it claims messages of a consumer group,
// hands them out, keeps their leases and settles them. It knows nothing of Redis
// beyond the operations of a Topic.
//
// Run starts these goroutines, and waits for them:
//
//	work     hands messages out, MaxInFlight of them      (work.go, batch.go)
//	releaseOverdue  gives back what waits behind a slow message  (work.go)
//	grow     opens new partitions, ends expired groups    (subscription.go)
//	keep     keeps the leases of all held messages        (keep.go)
//
// and these for each partition of the topic, so that a partition that does not answer delays
// no other:
//
//	fetch    claims messages into the buffer              (fetch.go)
//	settle   sends acks, nacks and the like               (settle.go)
//
// Each extension of leases, each end of a Listener and each report has a goroutine of its own
// while it lasts. Notifications say when to claim earlier (listen.go, hints.go); their
// goroutine belongs to all subscriptions of a client.
//
// The goroutines share the buffer of claimed messages (buffer.go), which decides how much more may be
// claimed (budget.go) by how fast messages are handled (pace.go). An observer is told what
// happens (report.go).
package delivery

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/internal/outage"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// closeGrace is how much longer than CloseTimeout a subscription may take to settle
// messages.
const closeGrace = 500 * time.Millisecond

var (
	// ErrLeaseLost says that the consumer no longer holds the message: another consumer may
	// have it, or it was cancelled, or its group was retired.
	ErrLeaseLost = errors.New("the lease of the message is lost")
	// ErrCloseTimeout says that a handler took longer than CloseTimeout to end.
	ErrCloseTimeout = errors.New("the subscription was closed and its handler took too long")

	errUnsettled = errors.New("not all acks and messages to give back reached redis in time")
)

// Topic is a topic as a consumer group sees it. See queue.Membership.
type Topic interface {
	// Partitions makes the group known in all partitions and returns how many there
	// are. It is not called concurrently.
	Partitions(ctx context.Context) (int, error)
	// EndExpired ends groups of the topic that have no live consumer any more. It takes
	// about a second at most. It is not called concurrently.
	EndExpired(ctx context.Context) ([]queue.Ended, error)
	Group(partition int) Group
	// Listen registers a HintHandler for the notifications of the partition, except about the
	// consumer's own claims. It does not block.
	Listen(partition int, consumer string, handler queue.HintHandler) Listener
}

// Group is the consumer group in one partition. See queue.Group.
type Group interface {
	Claim(ctx context.Context, r queue.Request) (queue.Claims, error)
	Ack(ctx context.Context, done []queue.Done) (queue.Acked, error)
	Nack(ctx context.Context, maxDeliveries int, nacks []queue.Nack) (stale []string, buried []queue.Buried, err error)
	Extend(ctx context.Context, h queue.Heartbeat, held []queue.Held) ([]string, error)
	Release(ctx context.Context, releases []queue.Release) ([]string, error)
	Bury(ctx context.Context, burials []queue.Burial) ([]string, error)
	Leave(ctx context.Context, consumer string) error
}

// Listener is a registration for notifications that the group may have messages earlier than the
// last claim said. See queue.Listener.
type Listener interface {
	// Retry makes the next attempt to receive notifications happen now.
	Retry()
	Close()
}

// Config configures a subscription. All fields are required except MaxDeliveries,
// GroupExpiry, Punctual, ConsumerInfo, Handle, Observer and Place.
type Config struct {
	// Decode makes the message to hand out, with ctx as the base of its context.
	Decode func(ctx context.Context, m queue.Claimed) (*message.Message, error)
	// Redelivery returns how to nack a message that was handed out with ctx: as failed or as
	// its handler has decided. The nack is valid even with an error, which is reported to the
	// observer.
	Redelivery func(ctx context.Context, msg *message.Message) (queue.Nack, error)

	Consumer      string // unique to this subscription
	MaxInFlight   int    // messages, or batches if there is a Handle
	Lease         time.Duration
	MaxDeliveries int
	MaxBytes      int  // of held messages that no handler has
	DropExpired   bool // what is too old for a handler ends; else, it becomes a dead letter
	PollInterval  time.Duration
	GroupExpiry   time.Duration // 0: the group does not expire
	CloseTimeout  time.Duration

	// Punctual makes the consumer claim at due times even if another one of the group is likely
	// to go first.
	Punctual bool

	// ConsumerInfo returns what operators see of the consumer, given the messages that its handlers
	// have had for longer than a heartbeat; nil: nothing.
	ConsumerInfo func(extended []Extended) string

	// Handle gets messages in batches of up to BatchSize, in order, instead of those who read
	// Messages. It settles them by their Ack and Nack; what it leaves is nacked when it returns.
	// nil to hand out single messages.
	Handle    func(batch []*message.Message)
	BatchSize int

	Observer observe.Observer
	Place    observe.Place // topic and group, for Observer
}

// Subscription delivers messages from Run until its context ends.
type Subscription struct {
	// immutable
	topic   Topic
	config  Config
	out     chan *message.Message
	offers  sync.RWMutex // read-locked to send on out, locked to close it
	buffer  *buffer
	keeper  *keeper
	outages *outage.State
	// abandon is closed when the time for handlers to finish is over.
	abandon     chan struct{}
	grown       chan struct{} // tells grow that there are more partitions
	lastClaim   lastClaim
	recreatedAt atomic.Int64  // when the group was recreated, in ns of the Unix time; 0: never
	paused      chan struct{} // tells releaseOverdue that nobody is to get messages
}

// New prepares a subscription; Run starts it.
func New(topic Topic, config Config) *Subscription {
	each := 1
	if config.Handle != nil {
		each = config.BatchSize
	}
	return &Subscription{
		topic:   topic,
		config:  config,
		out:     make(chan *message.Message),
		buffer:  newBuffer(config.MaxBytes, config.MaxInFlight, each),
		keeper:  newKeeper(),
		outages: outage.New(config.Observer, 0),
		abandon: make(chan struct{}),
		grown:   make(chan struct{}, 1),
		paused:  make(chan struct{}, 1),
	}
}

// Messages is where messages are handed out. Run closes it.
func (s *Subscription) Messages() <-chan *message.Message { return s.out }

// goroutines are a subscription's, in the order in which they end.
type goroutines struct {
	workers  sync.WaitGroup // end with ctx, and each with its message
	fetchers sync.WaitGroup // end with ctx, after their last claim and what they give back
	settlers sync.WaitGroup // end once drained is closed and all is settled
	keepers  sync.WaitGroup // end with the context of calls, or soon after ctx
	drained  chan struct{}  // closed when nothing more will need settling
}

// Run delivers the messages of this many partitions, and of partitions added later, until
// ctx ends. Then it gives back the messages not handed out, waits CloseTimeout for the
// handlers of the others, gives back the rest, and returns. The error says that not all of
// it reached Redis, or that a decoder has not ended; that goroutine ends on its own.
func (s *Subscription) Run(ctx context.Context, partitions int) error {
	// Calls to Redis outlive ctx: a claim under way must be given back, and acks
	// must arrive.
	calls, cancelCalls := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelCalls()
	s.lastClaim.partitions.Store(int32(partitions))

	g := &goroutines{drained: make(chan struct{})}
	g.keepers.Go(func() { s.keeper.run(calls, &g.keepers) })
	open := func(number int) { newPartition(s, number).run(ctx, calls, g) }
	for n := range partitions {
		open(n)
	}
	g.fetchers.Go(func() { s.grow(ctx, partitions, open) })
	g.fetchers.Go(func() { s.releaseOverdue(ctx) }) // what it gives back must still be settled
	for _, w := range s.buffer.workers {
		g.workers.Go(func() { s.work(ctx, w) })
	}
	<-ctx.Done()
	return s.shutDown(calls, cancelCalls, g)
}

// shutDown ends the subscription, in CloseTimeout and closeGrace at most.
func (s *Subscription) shutDown(calls context.Context, cancelCalls func(), g *goroutines) error {
	s.releaseAll(s.buffer.close()) // first, since other consumers can handle them
	hard, cancelHard := context.WithTimeout(context.WithoutCancel(calls), s.config.CloseTimeout+closeGrace)
	defer cancelHard()
	defer time.AfterFunc(s.config.CloseTimeout, func() { close(s.abandon) }).Stop()
	complete := ended(hard, &g.workers) // each with its message, or when abandon is closed
	complete = ended(hard, &g.fetchers) && complete
	close(g.drained)
	complete = ended(hard, &g.settlers) && complete
	s.offers.Lock() // offers end with ctx
	close(s.out)
	s.offers.Unlock()
	cancelCalls()
	ended(hard, &g.keepers)
	s.outages.Close()
	if !complete {
		return errUnsettled
	}
	return nil
}

// lastClaim is what the last claim in the first partition has shown of the topic.
type lastClaim struct {
	partitions atomic.Int32
	upToDateAt atomic.Int64 // when it was made, in ns of the Unix time; 0: never
	endingAt   atomic.Int64 // when groups last might end soon, in ns of the Unix time; 0: never
}

// recreatedWithin is how long all partitions take at most to recreate a group.
const recreatedWithin = time.Minute

// firstToRecreate reports whether the caller's partition is the first that recreates the group.
func (s *Subscription) firstToRecreate() bool {
	now, last := time.Now().UnixNano(), s.recreatedAt.Load()
	first := last == 0 || now-last >= int64(recreatedWithin)
	return first && s.recreatedAt.CompareAndSwap(last, now)
}

// maxGrowInterval is how often grow reads the topic although claims show no change: Redis may have lost the topic
// from its list, or have brought back a group that has ended in another partition.
const maxGrowInterval = 10 * time.Minute

// noteTopic takes what a claim in the first partition shows of the topic. The number of partitions is 0
// if it shows nothing.
func (s *Subscription) noteTopic(claims queue.Claims) {
	number := int32(claims.Partitions)
	if number == 0 {
		return
	}
	now := time.Now().UnixNano()
	s.lastClaim.upToDateAt.Store(now)
	if claims.Ending {
		s.lastClaim.endingAt.Store(now)
	}
	if s.lastClaim.partitions.Swap(number) != number {
		s.lastClaim.upToDateAt.Store(0)
		signal(s.grown)
	}
}

// endingLooks is how many looks a claim that shows that groups may end soon is good for: it takes two, 9 s
// apart or more, to end one.
const endingLooks = 3

// upToDate reports whether a claim has shown lately that grow has nothing to do. The last claim of an idle consumer
// may be a quiet interval and a round trip ago.
func (s *Subscription) upToDate() bool {
	since := func(at *atomic.Int64) time.Duration { return time.Since(time.Unix(0, at.Load())) }
	return since(&s.lastClaim.upToDateAt) < s.config.quietInterval()+s.config.PollInterval &&
		since(&s.lastClaim.endingAt) > endingLooks*s.config.PollInterval
}

// grow opens partitions that are added to the topic, and ends groups that have expired,
// until ctx ends.
func (s *Subscription) grow(ctx context.Context, partitions int, open func(number int)) {
	ticker := time.NewTicker(s.config.PollInterval)
	defer ticker.Stop()
	report := newReporter(s, -1)
	next := time.Now().Add(jitter(maxGrowInterval))
	for {
		select {
		case <-ticker.C:
			if s.upToDate() && time.Now().Before(next) {
				continue
			}
		case <-s.grown:
		case <-ctx.Done():
			return
		}
		next = time.Now().Add(jitter(maxGrowInterval))
		number, err := s.topic.Partitions(ctx)
		report.attempted(ctx, observe.Growing, err)
		for ; partitions < number; partitions++ {
			open(partitions)
		}
		if err == nil {
			ended, err := s.topic.EndExpired(ctx)
			report.ended(ended)
			report.attempted(ctx, observe.Ending, err)
		}
	}
}

// ended waits for goroutines until ctx ends, and returns whether they have ended.
func ended(ctx context.Context, running *sync.WaitGroup) bool {
	done := make(chan struct{})
	go func() { // ends with the goroutines it waits for
		running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
