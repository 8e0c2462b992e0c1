package delivery

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// work hands out one message after another until ctx ends.
func (s *Subscription) work(ctx context.Context) {
	for {
		it := s.take(ctx)
		if it == nil {
			return
		}
		s.handle(ctx, it)
		if s.outstanding.Add(-1) <= s.low.Load() {
			s.signalRoom()
		}
	}
}

// take waits for the next message in the buffer; nil when ctx has ended.
func (s *Subscription) take(ctx context.Context) *item {
	select {
	case it := <-s.buffer:
		return it
	case <-ctx.Done():
		return nil
	}
}

func (s *Subscription) signalRoom() {
	select {
	case s.room <- struct{}{}:
	default:
	}
}

// handle offers a message to whoever reads the channel and waits until it is
// settled.
func (s *Subscription) handle(ctx context.Context, it *item) {
	start := time.Now()
	handed, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	msg, err := s.config.Decode(handed, it.Claimed)
	if err != nil {
		s.config.Logger.Error("Cannot decode message, making it a dead letter", err, watermill.LogFields{"id": it.ID})
		s.settler.bury(it, "cannot decode: "+err.Error())
		return
	}
	delivered := msg.Context() // a middleware may replace it
	if !s.leases.handOut(it, cancel) {
		return
	}
	if ctx.Err() != nil || !s.offer(ctx, handed, msg) {
		s.settler.release(it) // refused if the lease is lost
		return
	}
	select {
	case <-msg.Acked():
		s.settler.ack(it)
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
	s.settler.nack(nack)
}

// settleAbandoned gives back a message whose handler has not finished in time, or
// just so. The delivery counts, since the handler has seen the message.
func (s *Subscription) settleAbandoned(delivered context.Context, msg *message.Message, it *item) {
	select {
	case <-msg.Acked():
		s.settler.ack(it)
	case <-msg.Nacked():
		s.nack(delivered, msg, it)
	default:
		s.settler.abandon(it)
	}
}
