package delivery

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// work hands out one message after another until ctx ends.
func (s *Subscription) work(ctx context.Context) {
	base := context.WithoutCancel(ctx) // of the contexts of messages
	for {
		it := s.take(ctx)
		if it == nil {
			return
		}
		s.handle(ctx, base, it)
		s.room.free(1)
	}
}

// take waits for the next message in the buffer; nil when ctx has ended.
func (s *Subscription) take(ctx context.Context) *item {
	select {
	case it := <-s.buffer.items:
		return it
	case <-ctx.Done():
		return nil
	}
}

// relieve gives back what is in the buffer when it waits there for too long: the
// workers have become slow, and others may be free. It ends with ctx.
func (s *Subscription) relieve(ctx context.Context) {
	for s.buffer.stalled(ctx) {
		s.pace.stalled()
		s.giveBack()
	}
}

// giveBack releases what is in the buffer, all of a lane at once: what comes later
// must not be claimed before.
func (s *Subscription) giveBack() {
	items := s.buffer.drain()
	lists := map[*lane][]*item{}
	for _, it := range items {
		lists[it.lane] = append(lists[it.lane], it)
	}
	for l, list := range lists {
		l.settler.release(list...)
	}
	s.room.free(len(items))
}

// handle offers a message to whoever reads the channel and waits until it is
// settled.
func (s *Subscription) handle(ctx, base context.Context, it *item) {
	start := time.Now()
	handed, cancel := context.WithCancelCause(base)
	defer cancel(nil)
	msg, err := s.config.Decode(handed, it.Claimed)
	it.Body = nil // the message has it; items are freed many at a time
	if err != nil {
		s.config.Logger.Error("Cannot decode message, making it a dead letter", err, watermill.LogFields{"id": it.ID})
		it.lane.settler.bury(it, "cannot decode: "+err.Error())
		return
	}
	delivered := msg.Context() // a middleware may replace it
	if !it.lane.leases.handOut(it, cancel) {
		return
	}
	if ctx.Err() != nil || !s.offer(ctx, handed, msg) {
		it.lane.settler.release(it) // refused if the lease is lost
		return
	}
	select {
	case <-msg.Acked():
		it.lane.settler.ack(it)
	case <-msg.Nacked():
		s.nack(delivered, msg, it) //nolint:contextcheck // the context that the message was handed out with
	case <-s.abandon:
		cancel(ErrCloseTimeout)
		s.settleAbandoned(delivered, msg, it) //nolint:contextcheck // as above
	}
	s.pace.observe(time.Since(start))
}

// offer hands a message out, unless ctx or the message's own context ends first.
func (s *Subscription) offer(ctx, handed context.Context, msg *message.Message) bool {
	select {
	case s.out <- msg: // a fast reader waits already
		return true
	default:
	}
	select {
	case s.out <- msg:
		return true
	case <-ctx.Done():
		return false
	case <-handed.Done():
		return false
	}
}

func (s *Subscription) nack(delivered context.Context, msg *message.Message, it *item) {
	nack, err := s.config.Redelivery(delivered, msg)
	if err != nil {
		s.config.Logger.Error("Cannot keep the delay that the message was given", err, watermill.LogFields{"id": it.ID})
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
