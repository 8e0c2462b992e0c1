// Package delivery runs one subscription: it claims messages of a consumer group,
// hands them out, keeps their leases and settles them. It knows nothing of Redis
// beyond the operations of a Topic.
//
// A process may have thousands of subscriptions, most of them idle. An idle one has a goroutine for each partition of the
// topic, so that a partition that does not answer delays no other:
//
//	fetch     claims messages into the buffer                    (fetch.go)
//
// The others start when there is something to do, and end when nothing is left:
//
//	work      hands out messages, MaxInFlight of them at most    (work.go, batch.go)
//	settle    sends acks, nacks and the like of one partition    (settle.go)
//	maintain  looks after the leases of all held messages, what waits behind a slow message and new partitions
//	          (maintain.go, alarm.go)
//
// The end of the context starts shutDown, which waits for them. Each extension of leases, each look at the topic, each end of
// a Listener and each report has a goroutine of its own while it lasts. Notifications say when to claim earlier (listen.go,
// hints.go); their goroutine belongs to all subscriptions of a client.
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
	// about two seconds at most. It is not called concurrently.
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

// Config configures a subscription. All fields are required except MaxDeliveries, DropExpired,
// GroupExpiry, ConsumerInfo, Handle, Observer and Place, and BatchSize without a Handle.
type Config struct {
	// Decode makes the message to hand out, with ctx as the base of its context. It expires at a time by Redis's clock; the zero
	// time means never.
	Decode func(ctx context.Context, m queue.Claimed) (msg *message.Message, expiresAt time.Time, err error)
	// Redelivery returns how to nack a message that was handed out with ctx: as failed or as
	// its handler has decided. The nack is valid even with an error, which is reported to the
	// observer.
	Redelivery func(ctx context.Context, msg *message.Message) (queue.Nack, error)

	Consumer      string // unique to this subscription
	MaxInFlight   int    // messages, or batches if there is a Handle
	Lease         time.Duration
	MaxDeliveries int
	MaxBytes      int  // of held messages that no handler has
	DropExpired   bool // expired messages end; else, they become dead letters
	PollInterval  time.Duration
	PingInterval  time.Duration // how often notifications are checked
	GroupExpiry   time.Duration // 0: the group does not expire
	CloseTimeout  time.Duration

	// ConsumerInfo returns what operators see of the consumer, given the messages that its handlers
	// have when a heartbeat is sent, oldest first; nil: nothing.
	ConsumerInfo func(extended []Extended) string

	// Handle gets messages in batches of up to BatchSize, in order, instead of those who read
	// Messages. It settles them by their Ack and Nack; what it leaves is nacked when it returns.
	// nil to hand out single messages.
	Handle    func(batch []*message.Message)
	BatchSize int

	Observer observe.Observer
	Place    observe.Place // topic and group, for Observer
}

// Subscription delivers messages from Start until its context ends.
type Subscription struct {
	// immutable
	topic   Topic
	config  Config
	out     chan *message.Message
	offers  sync.RWMutex // read-locked to send on out, locked to close it
	buffer  *buffer
	outages *outage.State
	// abandon is closed when the time for handlers to finish is over.
	abandon chan struct{}
	alarm   *alarm // calls maintain

	// set by Start
	ctx      context.Context // of the subscription
	retrying context.Context // of claims; outlasts ctx by lastRetries
	calls    context.Context // of the other calls to Redis; outlasts ctx until all is settled

	running     goroutines
	lastClaim   lastClaim
	recreatedAt atomic.Pointer[time.Time] // when the group was recreated; nil: never
	paused      atomic.Bool               // tells maintain that nobody is to get messages
	grown       atomic.Bool               // tells maintain that there are more partitions

	// owned by Start, then maintain, then shutDown
	partitions []*partition
	growth     growth
}

// New prepares a subscription; Start starts it.
func New(topic Topic, config Config) *Subscription {
	each := 1
	if config.Handle != nil {
		each = config.BatchSize
	}
	s := &Subscription{
		topic:   topic,
		config:  config,
		out:     make(chan *message.Message),
		outages: outage.New(config.Observer, 0),
		abandon: make(chan struct{}),
		alarm:   newAlarm(),
	}
	s.buffer = newBuffer(config.MaxBytes, config.MaxInFlight, each, s.alarm)
	return s
}

// Messages is where messages are handed out. The end of the subscription closes it.
func (s *Subscription) Messages() <-chan *message.Message { return s.out }

// goroutines are a subscription's, in the order in which they end. While shutDown waits for a WaitGroup, only goroutines
// that the WaitGroup counts already add others to it.
type goroutines struct {
	workers  sync.WaitGroup // end each with its message, or soon after ctx
	fetchers sync.WaitGroup // end with ctx, after their last claim and what they give back
	settlers sync.WaitGroup // end when nothing is to be settled
	leavers  sync.WaitGroup // the last call of each settler that has ended
	keepers  sync.WaitGroup // end with the context of calls, or soon after ctx
}

// Run is Start that waits until the subscription has ended, and returns the error.
func (s *Subscription) Run(ctx context.Context, partitions int) error {
	ended := make(chan error, 1)
	s.Start(ctx, partitions, func(err error) { ended <- err })
	return <-ended
}

// Start delivers the messages of this many partitions, and of partitions added later, until
// ctx ends. Then it gives back the messages not handed out, waits CloseTimeout for the
// handlers of the others, gives back the rest, and calls ended. The error says that not all of
// it reached Redis, or that a decoder has not ended; that goroutine ends on its own.
func (s *Subscription) Start(ctx context.Context, partitions int, ended func(error)) {
	// Calls to Redis outlive ctx: a claim under way must be given back, and acks
	// must arrive.
	var endCalls, endRetries context.CancelFunc
	s.ctx = ctx
	s.calls, endCalls = context.WithCancel(context.WithoutCancel(ctx))
	s.retrying, endRetries = context.WithCancel(context.WithoutCancel(ctx))
	s.lastClaim.partitions.Store(int32(partitions))
	s.growth.begin(s.config)
	s.buffer.start = func(w *worker, it *item) { s.running.workers.Go(func() { s.work(w, it) }) } //nolint:contextcheck // s has it
	s.open(partitions)
	s.alarm.set(s.maintain)
	context.AfterFunc(ctx, func() { //nolint:contextcheck // s has it
		defer endRetries()
		defer time.AfterFunc(lastRetries, endRetries).Stop()
		ended(s.shutDown(endCalls))
	})
}

// shutDown ends the subscription, in CloseTimeout and closeGrace at most.
func (s *Subscription) shutDown(endCalls func()) error {
	defer endCalls()
	s.releaseAll(s.buffer.close()) // first, since other consumers can handle them
	s.alarm.set(s.keepLeases)
	hard, cancelHard := context.WithTimeout(context.WithoutCancel(s.ctx), s.config.CloseTimeout+closeGrace)
	defer cancelHard()
	defer time.AfterFunc(s.config.CloseTimeout, func() { close(s.abandon) }).Stop()
	for _, p := range s.partitions {
		p.stopListening()
	}
	complete := ended(hard, &s.running.workers) // each with its message, or when abandon is closed
	complete = ended(hard, &s.running.fetchers) && complete
	for _, p := range s.partitions {
		p.settler.end()
	}
	if ended(hard, &s.running.settlers) {
		ended(hard, &s.running.leavers) // which do not count: all is settled
	} else {
		complete = false
	}
	s.offers.Lock() // offers end with ctx
	close(s.out)
	s.offers.Unlock()
	endCalls()
	s.alarm.stop()
	ended(hard, &s.running.keepers)
	s.outages.Close()
	if !complete {
		return errUnsettled
	}
	return nil
}

// lastClaim is what the last claim in the first partition has shown of the topic. The times have a reading of the
// monotonic clock: the host's clock may be set back.
type lastClaim struct {
	partitions atomic.Int32
	upToDateAt atomic.Pointer[time.Time] // when it was made; nil: never
	endingAt   atomic.Pointer[time.Time] // when groups last might end soon; nil: never
}

// recreatedWithin is how long all partitions take at most to recreate a group.
const recreatedWithin = time.Minute

// firstToRecreate reports whether the caller's partition is the first that recreates the group.
func (s *Subscription) firstToRecreate() bool {
	now, last := time.Now(), s.recreatedAt.Load()
	first := last == nil || now.Sub(*last) >= recreatedWithin
	return first && s.recreatedAt.CompareAndSwap(last, &now)
}

// noteTopic takes what a claim in the first partition shows of the topic. The number of partitions is 0 only in
// tests, whose claims show nothing of it.
func (s *Subscription) noteTopic(claims queue.Claims) {
	number := int32(claims.Partitions)
	if number == 0 {
		return
	}
	now := time.Now()
	s.lastClaim.upToDateAt.Store(&now)
	if claims.Ending {
		s.lastClaim.endingAt.Store(&now)
	}
	if s.lastClaim.partitions.Swap(number) != number {
		s.lastClaim.upToDateAt.Store(nil)
		s.noteGrown()
	}
}

// endingLooks is how many looks follow a claim that shows that groups may end soon. Ending a group takes two
// looks, 9 s apart or more.
const endingLooks = 3

// upToDate reports whether a claim has shown lately that look has nothing to do. The last claim of an idle consumer
// may be a quiet interval and a round trip ago.
func (s *Subscription) upToDate() bool {
	at, ending := s.lastClaim.upToDateAt.Load(), s.lastClaim.endingAt.Load()
	return at != nil && time.Since(*at) < s.config.quietInterval()+s.config.PollInterval &&
		(ending == nil || time.Since(*ending) > endingLooks*s.config.PollInterval)
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
