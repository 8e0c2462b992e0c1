package delivery

import (
	"context"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

const (
	// Claims, settlements and leases may all fail at once, for one reason. They take
	// turns when they try again, so that all together they try, and tell, at most
	// five times in a second.
	minBackoff = 500 * time.Millisecond
	maxBackoff = 2 * time.Second

	// maxListenBackoff is longer: without notifications there is still the poll.
	maxListenBackoff = 30 * time.Second

	// maxHeld is how many messages may be held, most of them with an ack that does
	// not reach Redis, before a subscription stops claiming more.
	maxHeld = 4 * maxClaim

	// lastTries is how long an ended subscription tries to learn what a claim got
	// whose reply was lost.
	lastTries = time.Second
)

// fetch claims messages whenever there is room and something may be due, until
// ctx ends; then it gives back what the workers have not taken.
func (s *Subscription) fetch(ctx, calls context.Context) {
	defer s.giveBack()
	trying, cancel := outlasting(ctx, calls, lastTries)
	defer cancel()
	request := queue.Request{
		Consumer:      s.config.Consumer,
		Lease:         s.config.Lease,
		MaxDeliveries: s.config.MaxDeliveries,
	}
	for ctx.Err() == nil {
		if request.Limit = s.want(); request.Limit == 0 || s.hints.wait() > 0 {
			s.await(ctx, request.Limit == 0)
			continue
		}
		request.Number++
		s.claim(ctx, trying, request)
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

// claim makes one request, sending it again until it is answered or trying ends,
// since any of the attempts may have leased messages.
func (s *Subscription) claim(ctx, trying context.Context, request queue.Request) {
	pause := backoff.Backoff{Min: minBackoff, Max: maxBackoff}
	for failed := false; ; failed = true {
		s.hints.reset()
		start := time.Now()
		claims, err := s.config.Group.Claim(trying, request)
		if err == nil {
			if failed {
				s.config.Logger.Info("Claiming messages works again", nil)
			}
			s.accept(claims, request.Limit, start)
			return
		}
		s.config.Logger.Error("Cannot claim messages", err, nil)
		if ctx.Err() != nil && queue.Refused(err) || !pause.Wait(trying) || !s.turns.Wait(trying) {
			return
		}
	}
}

// accept puts claimed messages into the buffer.
func (s *Subscription) accept(claims queue.Claims, limit int, start time.Time) {
	s.pace.claimed(len(claims.Messages), limit)
	if len(claims.Messages) > 0 {
		s.filled = time.Now()
	}
	s.outstanding.Add(int64(len(claims.Messages)))
	for _, it := range s.leases.hold(claims.Messages, start) {
		s.buffer <- it
	}
	switch next := claims.Next; {
	case next < 0 || next > s.config.PollInterval:
		s.hints.add(s.config.PollInterval)
	default:
		s.hints.add(next)
	}
}

// want is how many messages to claim now: enough for the free workers and a buffer
// that suits their pace; none while there are enough, acks pile up, or messages that
// come before any others are being given back.
func (s *Subscription) want() int {
	ahead := s.pace.ahead(s.config.MaxInFlight)
	low := s.config.MaxInFlight - 1 + ahead/2
	s.low.Store(int64(low))
	outstanding := int(s.outstanding.Load())
	if outstanding > low || s.leases.count() >= maxHeld || s.settler.releasing() {
		return 0
	}
	return min(s.config.MaxInFlight+ahead-outstanding, s.pace.most(s.config.MaxInFlight), maxClaim)
}

// await blocks until there is a reason to look again: room if the buffer is full,
// else something that is due. The buffer is filled for half of maxHold; if it is not
// empty after that time, the workers have become slow, and what they hold up goes
// back, for others to handle.
func (s *Subscription) await(ctx context.Context, full bool) {
	room, changed, due := s.room, s.hints.changed, (<-chan time.Time)(nil)
	if full {
		changed = nil
	} else {
		room = nil
		timer := time.NewTimer(s.hints.wait())
		defer timer.Stop()
		due = timer.C
	}
	var held <-chan time.Time
	if len(s.buffer) > 0 {
		timer := time.NewTimer(time.Until(s.filled.Add(maxHold)))
		defer timer.Stop()
		held = timer.C
	}
	select {
	case <-room:
	case <-changed:
	case <-due:
	case <-ctx.Done():
	case <-held:
		s.pace.stalled()
		s.giveBack()
	}
}

// giveBack releases what is in the buffer.
func (s *Subscription) giveBack() {
	var list []*item
	for {
		select {
		case it := <-s.buffer:
			list = append(list, it)
			continue
		default:
		}
		break
	}
	s.outstanding.Add(int64(-len(list)))
	s.settler.release(list...)
}

// listen turns notifications into hints until ctx ends.
func (s *Subscription) listen(ctx context.Context) {
	pause := backoff.Backoff{Min: minBackoff, Max: maxListenBackoff}
	silent := false
	for {
		err := s.listenOnce(ctx, func() {
			pause.Reset()
			silent = false
		})
		if ctx.Err() != nil {
			return
		}
		if !silent {
			s.config.Logger.Error("No notifications, polling instead", err, watermill.LogFields{
				"poll_interval": s.config.PollInterval,
			})
			silent = true
		}
		if !pause.Wait(ctx) {
			return
		}
	}
}

func (s *Subscription) listenOnce(ctx context.Context, heard func()) error {
	listener := s.config.Listen(ctx)
	// Only closing the connection ends a read that is under way.
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer func() {
		if stop() {
			_ = listener.Close() // nothing is lost with it
		}
	}()
	for {
		wait, err := listener.Next(ctx)
		if err != nil {
			return err
		}
		heard()
		s.hints.add(wait)
	}
}

// hints gathers when something may be due, from claims, nacks and notifications.
type hints struct {
	mu      sync.Mutex
	at      time.Time     // guarded by mu; zero: at once
	known   bool          // guarded by mu; whether at says anything
	changed chan struct{} // signalled when at has become earlier
}

func newHints() hints { return hints{changed: make(chan struct{}, 1), known: true} }

// reset forgets all hints: a claim is about to look. Hints that come while it
// looks count again.
func (h *hints) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known = false
}

// add says that something may be due in a while.
func (h *hints) add(in time.Duration) {
	at := time.Now().Add(in)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.known && !at.Before(h.at) {
		return
	}
	h.at, h.known = at, true
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// wait is how long nothing will be due.
func (h *hints) wait() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Until(h.at)
}
