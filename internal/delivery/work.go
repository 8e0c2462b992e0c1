package delivery

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// work hands out one message after another until ctx ends.
func (s *Subscription) work(ctx context.Context, w *worker) {
	base := context.WithoutCancel(ctx) // of the contexts of messages
	for it := s.buffer.take(ctx, w); it != nil; it = s.buffer.take(ctx, w) {
		s.handle(ctx, base, w, it)
	}
}

// relieve gives back what waits for too long, until ctx ends.
func (s *Subscription) relieve(ctx context.Context) {
	timer := time.NewTimer(maxHold)
	defer timer.Stop()
	for {
		select {
		case <-s.buffer.watch:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		back, in, ok := s.buffer.relieve(time.Now())
		if ok {
			timer.Reset(in)
		}
		s.giveBack(back)
	}
}

// giveBack releases messages, all of a lane at once: what comes later must not be
// claimed before.
func (s *Subscription) giveBack(items []*item) {
	lists := map[*lane][]*item{}
	for _, it := range items {
		lists[it.lane] = append(lists[it.lane], it)
	}
	for l, list := range lists {
		l.settler.release(list...)
		l.settler.returned(len(list)) // as the buffer has said
	}
}

// handle offers a message to whoever reads the channel and waits until it is
// settled.
func (s *Subscription) handle(ctx, base context.Context, w *worker, it *item) {
	handed, cancel := context.WithCancelCause(base)
	defer cancel(nil)
	msg, err := s.config.Decode(handed, it.Claimed)
	it.Body = nil // the message has it; items are freed many at a time
	if err != nil {
		s.buffer.passed(it, true)
		it.lane.settler.bury(it, "cannot decode: "+err.Error())
		return
	}
	delivered := msg.Context() // a middleware may replace it
	if !it.lane.leases.handOut(it, cancel) {
		s.buffer.passed(it, false)
		it.lane.settler.release(it) // in case that it is not lost, but only uncertain
		return
	}
	accepted, recalled := s.offer(ctx, handed, w, msg)
	s.buffer.passed(it, accepted)
	if !accepted {
		it.lane.settler.release(it) // refused if the lease is lost
	}
	if recalled {
		it.lane.settler.returned(1)
	}
	if !accepted {
		return
	}
	it.handedOut.Store(true)
	it.lane.log.handedOut(it)
	select {
	case <-msg.Acked():
		it.lane.settler.ack(it)
	case <-msg.Nacked():
		s.nack(delivered, msg, it) //nolint:contextcheck // the context that the message was handed out with
	case <-s.abandon:
		cancel(ErrCloseTimeout)
		s.settleAbandoned(delivered, msg, it) //nolint:contextcheck // as above
	}
}

// offer hands a message out, unless ctx or the message's own context ends first, or it
// is recalled. A recall may come too late.
func (s *Subscription) offer(ctx, handed context.Context, w *worker, msg *message.Message) (accepted, recall bool) {
	s.offers.RLock()
	defer s.offers.RUnlock()
	if ctx.Err() != nil { // the channel may be closed
		return false, false
	}
	w.stage.Store(offering)
	next, told := preparing, false
	select {
	case s.out <- msg: // a fast reader waits already
		next = handling
	default:
		s.buffer.look()
		select {
		case s.out <- msg:
			next = handling
		case <-w.recall:
			told = true
		case <-ctx.Done():
		case <-handed.Done():
		}
	}
	if recall = !w.stage.CompareAndSwap(offering, next); recall {
		if !told {
			<-w.recall // is sent at once
		}
		if next == handling {
			w.stage.Store(handling)
		}
	}
	if next == handling {
		s.buffer.read()
	}
	return next == handling, recall
}

func (s *Subscription) nack(delivered context.Context, msg *message.Message, it *item) {
	nack, err := s.config.Redelivery(delivered, msg)
	if err != nil {
		it.lane.log.error("Cannot keep what the message was given for its next delivery", err, it.ID)
	}
	nack.Delivery = it.delivery()
	it.lane.settler.nack(nack)
}

// settleAbandoned gives back a message whose handler has not finished in time, or
// just so. The delivery counts, since the handler has seen the message.
func (s *Subscription) settleAbandoned(delivered context.Context, msg *message.Message, it *item) {
	select {
	case <-msg.Acked():
		it.lane.settler.ack(it)
	case <-msg.Nacked():
		s.nack(delivered, msg, it)
	default:
		it.lane.settler.abandon(it)
	}
}
