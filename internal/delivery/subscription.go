// Package delivery runs one subscription: it claims messages of a consumer group,
// hands them out, keeps their leases and settles them. It knows nothing of Redis
// beyond the operations of a Topic.
//
// A process may have thousands of subscriptions, most of them idle. An idle one has two goroutines, and one more
// for each further partition:
//
//	Run      looks after leases and what waits for long, opens new partitions  (subscription.go)
//	fetch    claims messages of one partition into the buffer                  (fetch.go)
//
// Run starts the others when there is something to do, and waits for all of them in the end. Each ends when it has
// nothing left to do:
//
//	work     hands out messages, MaxInFlight of them at most         (work.go, batch.go)
//	settle   sends acks, nacks and the like of one partition         (settle.go)
//	extend   extends the leases of one partition                     (keep.go)
//	look     looks for new partitions and for groups that have expired  (subscription.go)
//	keep     does what Run does about leases, while Run waits for others in the end  (keep.go)
//
// A partition that does not answer delays no other. Each end of a Listener and each report has a goroutine of its own
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
// Punctual, ConsumerInfo, Handle, Observer and Place.
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

// alive is how long the consumer counts as alive: it claims at least once in a poll
// interval, or extends leases.
func (c Config) alive() time.Duration { return max(c.Lease, 2*c.PollInterval) }

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
	grown       chan struct{} // tells Run that there are more partitions
	lastClaim   lastClaim
	recreatedAt atomic.Int64  // when the group was recreated, in ns of the Unix time; 0: never
	paused      chan struct{} // tells Run that nobody is to get messages

	// owned by Run
	partitions []*partition
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

// goroutines are a subscription's, in the order in which they end. Nothing is added to a group that Run waits for, unless a
// goroutine of that group adds it.
type goroutines struct {
	workers  sync.WaitGroup // end with ctx, and each with its message
	fetchers sync.WaitGroup // end with ctx, after their last claim
	settlers sync.WaitGroup // end when all is settled
	keepers  sync.WaitGroup // end with the context of calls, or soon after ctx
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

	g := &goroutines{}
	s.buffer.start = func(w *worker, it *item) { g.workers.Go(func() { s.work(ctx, w, it) }) }
	open := func(partitions int) {
		for number := len(s.partitions); number < partitions; number++ {
			s.partitions = append(s.partitions, newPartition(s, number))
			s.partitions[number].run(ctx, calls, g)
		}
	}
	open(partitions)
	s.mind(ctx, calls, g, open)
	return s.shutDown(calls, cancelCalls, g)
}

// mind looks after the subscription until ctx ends. It does nothing that takes long: that has a goroutine of its own.
func (s *Subscription) mind(ctx, calls context.Context, g *goroutines, open func(partitions int)) {
	overdue, grow := time.NewTimer(maxHold), newGrowth(s)
	defer overdue.Stop()
	defer grow.ticker.Stop()
	for {
		ticks, grown := grow.signals()
		select {
		case <-s.keeper.timer.C:
			s.keeper.tend(calls, &g.keepers)
		case <-s.keeper.sooner:
			s.keeper.tend(calls, &g.keepers)
		case <-overdue.C:
			s.releaseOverdue(overdue)
		case <-s.buffer.watch:
			s.releaseOverdue(overdue)
		case <-s.paused:
			s.releaseAll(s.buffer.takeBackAll())
		case <-ticks:
			grow.tick(ctx, &g.fetchers)
		case <-grown:
			grow.look(ctx, &g.fetchers)
		case partitions, more := <-grow.found:
			open(partitions)
			if !more {
				grow.found = nil
			}
		case <-ctx.Done():
			return
		}
	}
}

// shutDown ends the subscription, in CloseTimeout and closeGrace at most.
func (s *Subscription) shutDown(calls context.Context, cancelCalls func(), g *goroutines) error {
	s.releaseAll(s.buffer.close()) // first, since other consumers can handle them
	g.keepers.Go(func() { s.keeper.run(calls, &g.keepers) })
	hard, cancelHard := context.WithTimeout(context.WithoutCancel(calls), s.config.CloseTimeout+closeGrace)
	defer cancelHard()
	defer time.AfterFunc(s.config.CloseTimeout, func() { close(s.abandon) }).Stop()
	for _, p := range s.partitions {
		p.stopListening(&g.keepers)
	}
	complete := ended(hard, &g.workers) // each with its message, or when abandon is closed
	complete = ended(hard, &g.fetchers) && complete
	for _, p := range s.partitions {
		p.settler.end()
	}
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
	upToDateAt atomic.Int64 // when nothing was to be done, in ns of the Unix time; 0: never
}

// recreatedWithin is how long all partitions take at most to recreate a group.
const recreatedWithin = time.Minute

// firstToRecreate reports whether the caller's partition is the first that recreates the group.
func (s *Subscription) firstToRecreate() bool {
	now, last := time.Now().UnixNano(), s.recreatedAt.Load()
	first := last == 0 || now-last >= int64(recreatedWithin)
	return first && s.recreatedAt.CompareAndSwap(last, now)
}

// maxGrowInterval is how often grow reads the topic although claims show no change.
const maxGrowInterval = time.Minute

// noteTopic takes what a claim in the first partition shows of the topic. The number of partitions is 0
// if it shows nothing.
func (s *Subscription) noteTopic(claims queue.Claims) {
	number := int32(claims.Partitions)
	if number == 0 {
		return
	}
	changed := s.lastClaim.partitions.Swap(number) != number
	if changed || claims.Ending {
		s.lastClaim.upToDateAt.Store(0)
	} else {
		s.lastClaim.upToDateAt.Store(time.Now().UnixNano())
	}
	if changed {
		signal(s.grown)
	}
}

// upToDate reports whether a claim has shown within a poll interval that grow has nothing to do.
func (s *Subscription) upToDate() bool {
	return time.Since(time.Unix(0, s.lastClaim.upToDateAt.Load())) < s.config.PollInterval
}

// growth finds out about partitions that are added to the topic, and ends groups that have expired. It is owned by Run.
type growth struct {
	subscription *Subscription
	ticker       *time.Ticker
	looked       time.Time
	found        chan int // how many partitions the look under way has found; closed when it has ended; nil if there is none
}

func newGrowth(s *Subscription) *growth {
	return &growth{subscription: s, ticker: time.NewTicker(s.config.PollInterval), looked: time.Now()}
}

// signals are what starts the next look: nothing before the last one has ended.
func (g *growth) signals() (ticks <-chan time.Time, grown <-chan struct{}) {
	if g.found != nil {
		return nil, nil
	}
	return g.ticker.C, g.subscription.grown
}

// tick looks at the topic, unless claims show that there is nothing to do.
func (g *growth) tick(ctx context.Context, running *sync.WaitGroup) {
	if !g.subscription.upToDate() || time.Since(g.looked) >= maxGrowInterval {
		g.look(ctx, running)
	}
}

func (g *growth) look(ctx context.Context, running *sync.WaitGroup) {
	g.looked, g.found = time.Now(), make(chan int, 1)
	running.Go(func() { g.subscription.look(ctx, g.found) })
}

// look finds out how many partitions there are, and ends groups that have expired.
func (s *Subscription) look(ctx context.Context, found chan<- int) {
	defer close(found)
	report := newReporter(s, -1)
	number, err := s.topic.Partitions(ctx)
	report.attempted(ctx, observe.Growing, err)
	if err != nil {
		return
	}
	found <- number
	ended, err := s.topic.EndExpired(ctx)
	report.ended(ended)
	report.attempted(ctx, observe.Ending, err)
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
