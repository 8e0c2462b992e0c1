package delivery

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// ErrCloseTimeout says that a handler took longer than CloseTimeout to end.
var ErrCloseTimeout = errors.New("the subscription was closed and its handler took too long")

// dispatcher hands out messages. Workers run it.
type dispatcher struct {
	shared
	out    chan *message.Message
	offers sync.RWMutex // read-locked to send on out, locked to close it
	// abandon is closed when the time for handlers to finish is over.
	abandon chan struct{}
}

// handed is a message that a handler has.
type handed struct {
	item      *item
	msg       *message.Message
	delivered context.Context
	cancel    context.CancelCauseFunc
	at        time.Time // when it was handed out; zero if the observer does not need it
}

// work hands out the first message of the worker, and then waiting messages until none is left.
func (d *dispatcher) work(w *worker, it *item) {
	base := context.WithoutCancel(d.ctx) // base of the messages' contexts
	for ; it != nil; it = d.buffer.next(w) {
		if d.config.Handle != nil {
			d.handleBatch(base, w, append([]*item{it}, d.buffer.more()...))
		} else {
			d.handle(base, w, it)
		}
	}
}

// handle offers a message on the channel and waits until it is settled.
func (d *dispatcher) handle(base context.Context, w *worker, it *item) {
	p := it.partition
	own, cancel := context.WithCancelCause(base)
	defer cancel(nil)
	msg, verdict := d.prepare(own, cancel, it)
	switch verdict {
	case skipped: // counts as a message that was handled at once
		w.stage.Store(handling)
		return
	case uncertain:
		return
	}
	delivered := msg.Context() // a middleware may replace it
	accepted, recall := d.offer(own, w, it, msg)
	d.buffer.doneWaiting(it, accepted)
	if !accepted {
		p.settler.release(it) // has no effect if the lease is lost
	}
	if recall {
		p.settler.endRelease(1)
	}
	if accepted {
		it.handedOut.Store(true)
		d.finish(handed{it, msg, delivered, cancel, p.report.handedOut(it)}, nil)
	}
}

// verdict is what the check of an item before its handler gets it has found.
type verdict int

const (
	admitted  verdict = iota // a handler may get the item
	skipped                  // the item is settled without a handler: it has expired, or it cannot be decoded
	uncertain                // the lease may be over, so the item and those behind it are released
)

// prepare decodes an admitted item. own is the context of the message, which cancel ends. An item that cannot be decoded
// is dead-lettered. The message is nil unless the item is admitted.
func (d *dispatcher) prepare(
	own context.Context, cancel context.CancelCauseFunc, it *item, behind ...*item,
) (*message.Message, verdict) {
	p := it.partition
	if v := d.admit(it, nil, behind...); v != admitted {
		return nil, v
	}
	msg, expiresAt, err := d.config.Decode(own, it.Claimed)
	it.expiresAt, it.Body = expiresAt, nil // so that the body is freed with the message, not with all items of its claim
	if err != nil {
		d.buffer.doneWaiting(it, true)
		p.report.messageFailed(observe.Decoding, it.ID, err)
		p.settler.bury(it, queue.Reason(fmt.Sprint("cannot decode: ", err))) // fmt survives a panic in Error
		return nil, skipped
	}
	if v := d.admit(it, cancel, behind...); v != admitted { // Decode may have taken long
		return nil, v
	}
	return msg, admitted
}

// admit checks whether a handler may get the item now. If the lease is lost later, cancel ends the context of the handler.
// An item that has expired is settled, once it is decoded. If the lease is uncertain, admit releases the item, the items
// behind it in the batch, and all items in the buffer.
func (d *dispatcher) admit(it *item, cancel context.CancelCauseFunc, behind ...*item) verdict {
	if !it.partition.leases.handOut(it, cancel) { // checked before the expiration, which another consumer may have met
		d.releaseUnseen(append([]*item{it}, behind...))
		return uncertain
	}
	if it.expired() {
		d.buffer.doneWaiting(it, true)
		it.partition.settler.expire(it)
		return skipped
	}
	return admitted
}

// releaseUnseen releases the items of a worker that no handler has seen, and all items in the buffer.
func (d *dispatcher) releaseUnseen(back []*item) {
	for _, it := range back {
		d.buffer.doneWaiting(it, false)
		it.releasing.Add(1) // before drainAll voids the claims under way, so that no later claim overtakes the item
	}
	releaseAll(append(back, d.buffer.drainAll()...))
}

// finish waits until a handler has settled its message or its time is over, and passes the outcome to the settler. When
// returned is closed, Handle has returned, and an unsettled message is nacked. A message that is not settled in time is
// abandoned: it is due at once for other consumers, and the delivery counts, since the handler has seen it.
func (d *dispatcher) finish(h handed, returned <-chan struct{}) {
	select {
	case <-h.msg.Acked():
	case <-h.msg.Nacked():
	case <-returned:
		h.msg.Nack() // no effect after an Ack
	case <-d.abandon:
		h.cancel(ErrCloseTimeout)
	}
	p, it := h.item.partition, h.item
	if !h.at.IsZero() {
		it.took = time.Since(h.at)
	}
	select {
	case <-h.msg.Acked():
		if it.ended.Load() {
			p.settler.forget(it)
		} else {
			p.settler.ack(it)
		}
	case <-h.msg.Nacked():
		nack, err := d.config.Redelivery(h.delivered, h.msg)
		if err != nil {
			p.report.messageFailed(observe.Redelivering, it.ID, err)
		}
		p.settler.nack(it, nack)
	default:
		p.settler.abandon(it)
	}
}

// offer sends a message on the channel, unless the subscription or own, the context of the message, ends first, the message
// expires, or the offer is recalled. A message may be both accepted and recalled.
func (d *dispatcher) offer(own context.Context, w *worker, it *item, msg *message.Message) (accepted, recall bool) {
	d.offers.RLock()
	defer d.offers.RUnlock()
	if d.ctx.Err() != nil { // the channel may be closed
		return false, false
	}
	w.stage.Store(offering)
	next, signaled := preparing, false
	select {
	case d.out <- msg: // a fast reader is already waiting
		next = handling
	default:
		d.buffer.watch()
		select {
		case d.out <- msg:
			next = handling
		case <-w.recall:
			signaled = true
		case <-d.ctx.Done():
		case <-own.Done():
		case <-it.expiry():
			d.buffer.noteExpiredOffer()
			next = recalled // by the worker itself
		}
	}
	if recall = !w.stage.CompareAndSwap(offering, next); recall {
		if !signaled {
			<-w.recall // it is about to be sent
		}
		if next == handling {
			w.stage.Store(handling)
		}
	}
	return next == handling, recall
}
