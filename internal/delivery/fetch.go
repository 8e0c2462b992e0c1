package delivery

import (
	"context"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

const (
	// Claims, settlements and leases of a partition may all fail at once, for one
	// reason. They take turns when they try again: together they try, and report a
	// failure, at most five times a second.
	minBackoff = 500 * time.Millisecond
	maxBackoff = 2 * time.Second

	// maxHeld is how many messages of a partition may be held, most of them with an
	// ack that does not reach Redis, before no more are claimed.
	maxHeld = 4 * maxClaim

	// lastTries is how long an ended subscription tries to learn what a claim got
	// whose reply was lost.
	lastTries = time.Second
)

// fetch claims messages whenever the budget allows it and something may be due, until
// ctx ends.
func (p *partition) fetch(ctx, calls context.Context) {
	trying, cancel := outlasting(ctx, calls, lastTries)
	defer cancel()
	request := queue.Request{
		Consumer:      p.subscription.config.Consumer,
		Lease:         p.subscription.config.Lease,
		MaxDeliveries: p.subscription.config.MaxDeliveries,
	}
	for p.hints.await(ctx) && p.awaitSettler(ctx) {
		r := p.subscription.buffer.reserve(ctx, p.need)
		if r == nil {
			return
		}
		if p.behind() { // by now
			p.subscription.buffer.fill(r, nil)
			continue
		}
		request.Number++
		request.Limit, request.Free, request.Bytes = r.messages, r.free, r.bytes
		p.settler.release(p.subscription.buffer.fill(r, p.claim(trying, request))...)
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

// behind reports whether claiming must wait for the settler: acks pile up, or messages are
// being given back, which come before any others.
func (p *partition) behind() bool { return p.leases.count() >= maxHeld || p.settler.releasing() }

func (p *partition) awaitSettler(ctx context.Context) bool {
	for p.behind() {
		select {
		case <-p.settler.advanced:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// claim makes one request, sending it again until it is answered or trying ends,
// since any of the attempts may have leased messages.
func (p *partition) claim(trying context.Context, request queue.Request) []*item {
	pause := backoff.Backoff{Min: minBackoff, Max: maxBackoff}
	trouble := p.trouble(observe.Claiming)
	for {
		p.hints.reset()
		start := time.Now()
		claims, err := p.group.Claim(trying, request)
		if err == nil {
			if trouble.worked() {
				tell(p.claiming)
			}
			return p.accept(claims, start)
		}
		trouble.failed(err)
		select {
		case <-p.listening: // that was before
		default:
		}
		if !pause.WaitUnless(trying, p.listening) || !p.turns.Wait(trying) {
			return nil
		}
	}
}

func (p *partition) accept(claims queue.Claims, start time.Time) []*item {
	p.hints.found(len(claims.Messages), p.atMostPoll(claims.Next))
	p.need = anyMessage
	if claims.NeedsWorker {
		p.need = freeWorker
	}
	p.report.buried(claims.Buried)
	items := p.leases.hold(claims.Messages, start)
	for _, it := range items {
		it.partition = p
	}
	p.report.claimed(items)
	return items
}

// atMostPoll is when to look again if something is due in a while; a negative time says
// that nothing is.
func (p *partition) atMostPoll(in time.Duration) time.Duration {
	if poll := p.subscription.config.PollInterval; in < 0 || in > poll {
		return spread(poll)
	}
	return in
}
