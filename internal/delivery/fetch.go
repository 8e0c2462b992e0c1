package delivery

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

const (
	// giveWay is how long a consumer that could not receive its messages waits before the next claim. Other consumers have been
	// notified, and can claim the messages meanwhile.
	giveWay = 300 * time.Millisecond

	// lastRetries is how long an ended subscription repeats a claim whose reply was lost,
	// to learn what it got. An attempt under way may take longer: its reply may still be arriving.
	lastRetries = time.Second
)

// fetch claims messages whenever something may be due, until ctx ends. Calls make a goroutine's stack grow, and fetch may
// wait for long. So after each round of claims, a new goroutine with a small stack takes over.
func (p *partition) fetch() {
	if p.hints.await(p.ctx) {
		p.claimDue()
		p.running.fetchers.Go(p.fetch)
	}
}

// claimDue claims messages as the budget allows it, until nothing is due or the subscription ends.
func (p *partition) claimDue() {
	request := queue.ClaimRequest{
		Consumer:      p.config.Consumer,
		Lease:         p.config.Lease,
		MaxDeliveries: p.config.MaxDeliveries,
	}
	for p.ctx.Err() == nil && p.hints.wait() <= 0 && p.awaitSettler() {
		r := p.buffer.reserve(p.ctx, p.need)
		if r == nil {
			return
		}
		if p.behind() { // since awaitSettler
			p.buffer.fill(r, nil)
			continue
		}
		p.requests++
		request.Number = p.requests
		request.Presence = p.leases.presence()
		request.Limit, request.Free, request.Bytes = r.messages, r.free, r.bytes
		p.settler.release(p.buffer.fill(r, p.claim(request))...)
	}
}

// behind reports whether claiming must wait for the settler: acks pile up, or messages are
// being released, and others must not overtake them.
func (p *partition) behind() bool {
	return p.leases.count() >= p.buffer.maxHeld() || p.settler.releasing.Load() > 0
}

func (p *partition) awaitSettler() bool {
	for p.behind() {
		select {
		case <-p.settler.advanced:
		case <-p.ctx.Done():
			return false
		}
	}
	return true
}

// claim makes one request. It repeats the request until Redis answers or p.retrying ends, since any attempt may have
// leased messages. An attempt itself may take longer. A repetition after a timeout asks for less, and at once: the
// timeout was pause enough. If Redis has a later request of the consumer, it goes on under a new number. If the group
// is retired, it repeats the request until the group is restored or the subscription ends.
func (p *partition) claim(request queue.ClaimRequest) []*item {
	pause := backoff.Backoff{Min: minBackoff, Max: maxBackoff}
	retired := backoff.Backoff{Min: p.config.PollInterval, Max: p.config.PollInterval}
	for repeated, lost := false, false; ; repeated = true {
		p.hints.reset()
		start := time.Now()
		claims, err := p.group.Claim(p.calls, request)
		if err == nil {
			items := p.accept(claims, start)
			if repeated && len(items) == 0 && claims.Next == 0 { // the leases are over
				backoff.Sleep(p.ctx, giveWay)
			}
			return items
		}
		if errors.Is(err, queue.ErrGroupRetired) {
			if !p.retired {
				p.report.forTopic().failed(observe.Claiming, err)
			}
			p.retired = true
			p.leases.noteAlive(start) // that nobody claims
			if !retired.WaitUnless(p.ctx, p.groupNotified) {
				return nil
			}
			continue
		}
		if behind := (*queue.StaleRequestError)(nil); errors.As(err, &behind) {
			p.requests = behind.Last + 1 + rand.Int64N(1<<20) // two processes set back to one image take different numbers
			request.Number = p.requests
		}
		p.report.failed(observe.Claiming, err)
		lost = lost || !script.IsAnswer(err)
		paused := script.TimedOut(err) && time.Since(start) >= minBackoff
		if p.retrying.Err() != nil || !paused && !p.pauseClaims(&pause) {
			if lost {
				p.unanswered.Store(true)
			}
			return nil
		}
	}
}

// pauseClaims waits before a failed claim is repeated. It returns false if p.retrying ends first.
func (p *partition) pauseClaims(pause *backoff.Backoff) bool {
	select {
	case <-p.listening: // a signal from before this failure
	default:
	}
	return pause.WaitUnless(p.retrying, p.listening) && p.spacing.Wait(p.retrying)
}

// noteClaimWorked reports that claiming works, and returns whether it had failed before.
func (p *partition) noteClaimWorked() bool {
	restored := p.retired
	if restored { // another partition may have reported it
		p.report.forTopic().worked(observe.Claiming)
	}
	p.retired = false
	return p.report.worked(observe.Claiming) || restored
}

// accept takes the answer to a claim that was sent at start.
func (p *partition) accept(claims queue.ClaimReply, start time.Time) []*item {
	if p.noteClaimWorked() {
		p.listener.Retry()
	}
	p.leases.noteAlive(start)
	p.hints.found(len(claims.Messages), claims.Next, time.Since(start))
	p.need = anyMessage
	if claims.NeedsWorker {
		p.need = freeWorker
	}
	if claims.Recreated {
		p.topology.noteGrown() // Redis may have lost more than the group
		if p.topology.firstToRecreate() {
			p.report.recreated()
		}
	}
	if p.number == 0 {
		p.topology.noteClaim(claims)
	}
	p.report.buried(claims.Buried)
	items := p.leases.hold(claims.Messages, start)
	for _, it := range items {
		it.partition, it.releasing = p, &p.settler.releasing
	}
	p.report.claimed(items)
	return items
}
