package delivery

import (
	"context"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

const (
	// Claims, settlements and leases of a partition may all fail at once, for one
	// reason. They take turns when they try again, so that all together they try, and
	// tell, at most five times in a second.
	minBackoff = 500 * time.Millisecond
	maxBackoff = 2 * time.Second

	// maxHeld is how many messages of a partition may be held, most of them with an
	// ack that does not reach Redis, before no more are claimed.
	maxHeld = 4 * maxClaim

	// lastTries is how long an ended subscription tries to learn what a claim got
	// whose reply was lost.
	lastTries = time.Second
)

// lane delivers the messages of one partition: it claims them into the buffer of the
// subscription, which it shares with other lanes, keeps their leases and settles them.
type lane struct {
	*Subscription
	partition int
	group     Group
	hints     hints
	leases    *leases
	settler   *settler
	turns     *backoff.Turns // for all that fails and is tried again
	progress  chan struct{}  // tells fetch that the settler has got on
	listening chan struct{}  // tells fetch that notifications work again
	claiming  chan struct{}  // tells listen that claims work again
	log       journal
	need      need // owned by fetch; what the next claim is good for
}

func newLane(s *Subscription, partition int) *lane {
	l := &lane{
		Subscription: s,
		partition:    partition,
		group:        s.topic.Group(partition),
		hints:        newHints(s.config.PollInterval),
		turns:        backoff.NewTurns(minBackoff),
		progress:     make(chan struct{}, 1),
		listening:    make(chan struct{}, 1),
		claiming:     make(chan struct{}, 1),
		log:          newJournal(s.config.Logger, partition),
	}
	l.leases = newLeases(l.config, l.group, l.turns)
	l.settler = newSettler(l.config, l.group, l.leases, l.turns, l.log, func(dueIn time.Duration, due bool) {
		if due {
			l.hints.add(dueIn)
		}
		tell(l.progress)
	})
	return l
}

// tell signals a channel that has room for one signal.
func tell(signal chan<- struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// fetch claims messages whenever there is room and something may be due, until
// ctx ends.
func (l *lane) fetch(ctx, calls context.Context) {
	trying, cancel := outlasting(ctx, calls, lastTries)
	defer cancel()
	request := queue.Request{
		Consumer:      l.config.Consumer,
		Lease:         l.config.Lease,
		MaxDeliveries: l.config.MaxDeliveries,
	}
	for l.hints.await(ctx) && l.awaitSettler(ctx) {
		r := l.buffer.reserve(ctx, l.need)
		if r == nil {
			return
		}
		if l.behind() { // by now
			l.buffer.fill(r, nil)
			continue
		}
		request.Number++
		request.Limit, request.Free, request.Bytes = r.messages, r.free, r.bytes
		l.settler.release(l.buffer.fill(r, l.claim(trying, request))...)
	}
}

// outlasting is a context that ends with calls, or a while after ctx.
func outlasting(ctx, calls context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(calls)
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(by, cancel) })
	return longer, func() {
		stop()
		cancel()
	}
}

// behind tells whether claiming must wait for the settler: acks pile up, or messages
// that come before any others are being given back.
func (l *lane) behind() bool { return l.leases.count() >= maxHeld || l.settler.releasing() }

func (l *lane) awaitSettler(ctx context.Context) bool {
	for l.behind() {
		select {
		case <-l.progress:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// claim makes one request, sending it again until it is answered or trying ends,
// since any of the attempts may have leased messages.
func (l *lane) claim(trying context.Context, request queue.Request) []*item {
	pause := backoff.Backoff{Min: minBackoff, Max: maxBackoff}
	for failed := false; ; failed = true {
		l.hints.reset()
		start := time.Now()
		claims, err := l.group.Claim(trying, request)
		if err == nil {
			if failed {
				l.config.Logger.Info("Claiming messages works again", nil)
				tell(l.claiming)
			}
			return l.accept(claims, start)
		}
		l.config.Logger.Error("Cannot claim messages", err, nil)
		select {
		case <-l.listening: // that was before
		default:
		}
		if !pause.WaitUnless(trying, l.listening) || !l.turns.Wait(trying) {
			return nil
		}
	}
}

func (l *lane) accept(claims queue.Claims, start time.Time) []*item {
	l.hints.found(len(claims.Messages), l.atMostPoll(claims.Next))
	l.need = anyMessage
	if claims.NeedsWorker {
		l.need = freeWorker
	}
	l.log.buried(claims.Buried)
	items := l.leases.hold(claims.Messages, start)
	for _, it := range items {
		it.lane = l
	}
	l.log.claimed(items)
	return items
}

// atMostPoll is when to look again if something is said to be due in a while, or,
// negative, nothing at all.
func (l *lane) atMostPoll(in time.Duration) time.Duration {
	if poll := l.config.PollInterval; in < 0 || in > poll {
		return spread(poll)
	}
	return in
}
