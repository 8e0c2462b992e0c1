package delivery

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// handleBatch calls Handle with messages. It settles a message once this message and all
// before it are acked or nacked. It returns when Handle returns or its time is over; in the
// second case, the goroutine of Handle ends later on its own.
func (d *dispatcher) handleBatch(base context.Context, w *worker, items []*item) {
	var batch []handed
	for i, it := range items {
		ctx, cancel := context.WithCancelCause(context.WithValue(base, batchMessageKey{}, BatchMessage{it}))
		defer cancel(nil)
		msg, verdict := d.prepare(ctx, cancel, it, items[i+1:]...)
		if verdict == uncertain {
			break
		}
		if verdict == admitted {
			batch = append(batch, handed{item: it, msg: msg, delivered: msg.Context(), cancel: cancel})
		}
	}
	w.stage.Store(handling)
	batch = d.admitBatch(batch)
	if len(batch) == 0 {
		return
	}
	messages := mapped(batch, func(h handed) *message.Message { return h.msg })
	for i, h := range batch {
		d.buffer.doneWaiting(h.item, true)
		h.item.handedOut.Store(true)
		batch[i].at = h.item.partition.report.handedOut(h.item)
	}
	done := make(chan struct{})
	go func() { // ends with Handle
		defer close(done)
		d.config.Handle(messages)
	}()
	for _, h := range batch {
		d.finish(h, done)
	}
	select {
	case <-done:
	case <-d.abandon:
	}
}

// admitBatch returns the messages of a batch that Handle may still get. Decoding the batch took time, so leases may be
// lost and messages may have expired.
func (d *dispatcher) admitBatch(batch []handed) (remaining []handed) {
	items := mapped(batch, func(h handed) *item { return h.item })
	if d.ctx.Err() != nil { // as offer does
		d.releaseUnseen(items)
		return nil
	}
	for i, h := range batch {
		verdict := d.admit(h.item, h.cancel, items[i+1:]...)
		if verdict == uncertain {
			break
		}
		if verdict == admitted {
			remaining = append(remaining, h)
		}
	}
	return remaining
}

type batchMessageKey struct{}

// BatchMessage is a message that Handle has. With it, Handle can settle the message in Redis by itself.
type BatchMessage struct{ item *item }

// BatchMessageOf returns the message that a context was handed out with.
func BatchMessageOf(ctx context.Context) (BatchMessage, bool) {
	h, ok := ctx.Value(batchMessageKey{}).(BatchMessage)
	return h, ok
}

// Group is the consumer group in the message's partition.
func (m BatchMessage) Group() Group { return m.item.partition.group }

// Partition is the number of that partition.
func (m BatchMessage) Partition() int { return m.item.partition.number }

// Delivery names the delivery.
func (m BatchMessage) Delivery() queue.Delivery { return m.item.delivery() }

// Size is that of the message in Redis, in bytes.
func (m BatchMessage) Size() int { return m.item.size }

// Expired reports whether the message has expired by Redis's clock.
func (m BatchMessage) Expired() bool { return m.item.expired() }

// BeginSettle must be called before sending a call that ends the group's work on the message.
func (m BatchMessage) BeginSettle() { m.item.partition.leases.settling([]*item{m.item}) }

// Settled must be called once Redis knows that the group is done with the message, so that its Ack
// sends nothing. room means that the group has waited for room under its limit, or that the next
// message of the ordering key has its turn.
func (m BatchMessage) Settled(room bool) {
	m.item.ended.Store(true)
	if room { // this consumer claims first; the others are notified
		m.item.partition.hints.add(0)
	}
}
