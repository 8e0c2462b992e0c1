package redisdelayotel

import (
	"container/list"
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/redisdelay/watermill-redisdelay/observe"
)

// maxHandlings is how many handlings may wait for their settlement. If there are more, most will never be settled: their
// SubscriberConfig has no Telemetry.Observer, or their subscription ended while Redis was down.
const maxHandlings = 10_000

// deliveryKey names one delivery of a message.
type deliveryKey struct {
	topic, group, id string
	token            int64
}

// handled is what a settlement needs to know of its handling.
type handled struct {
	key   deliveryKey
	uuid  string
	span  trace.Span
	start time.Time
}

// handlings are those that are not settled yet, up to maxHandlings. It is safe for concurrent use, and the zero value is
// ready for use.
type handlings struct {
	mu    sync.Mutex
	open  map[deliveryKey]*list.Element // guarded by mu
	order list.List                     // guarded by mu; of handled, the first one first
}

// put adds a handling that begins. A second one of the same delivery, as a retrying middleware makes, replaces the
// first.
func (h *handlings) put(begun *handling) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open == nil {
		h.open = map[deliveryKey]*list.Element{}
	}
	if before, ok := h.open[begun.key()]; ok {
		h.order.Remove(before)
	} else if h.order.Len() == maxHandlings {
		first, _ := h.order.Remove(h.order.Front()).(handled)
		delete(h.open, first.key)
	}
	h.open[begun.key()] = h.order.PushBack(handled{begun.key(), begun.uuid, begun.span, begun.start})
}

// take removes a handling.
func (h *handlings) take(key deliveryKey) (was handled, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e, ok := h.open[key]
	if ok {
		was, _ = h.order.Remove(e).(handled)
		delete(h.open, key)
	}
	return was, ok
}

func (h *handlings) get(key deliveryKey) (is handled, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e, ok := h.open[key]
	if ok {
		is, _ = e.Value.(handled)
	}
	return is, ok
}

// Scripts whose calls are operations of the conventions. The others are this library's own.
const claimScript = "claim"

func settles(script string) bool {
	return script == "ack" || script == "nack" || script == "release" || script == "bury"
}

// Observer returns an Observer for a SubscriberConfig. It reports how each handled delivery ended as a span such as "ack
// TOPIC", a child of the handling's, from the Ack or Nack until Redis has recorded it, and the duration of calls to
// Redis.
//
// Give it to all Subscribers whose handlings this Telemetry reports, or to none: without a reported end, each handling
// takes about 1.5 kB until 10,000 later ones have begun.
func (t *Telemetry) Observer() observe.Observer {
	t.observing.Store(true)
	return observe.Observer{Settled: t.settled, LeaseLost: t.leaseLost, Called: t.called}
}

func (t *Telemetry) settled(e observe.Settled) {
	was, ok := t.handlings.take(deliveryKey{e.Topic, e.Group, e.ID, e.Token})
	if !ok {
		return
	}
	now, start := time.Now(), was.start.Add(e.Took)
	if start.After(now) {
		start = now
	}
	operation := string(e.Settlement)
	_, span := t.tracer.Start(trace.ContextWithSpan(context.Background(), was.span), spanName(operation, e.Topic),
		trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(start),
		attributes(operation, e.Topic, e.Group), trace.WithAttributes(settlementAttributes(e, was.uuid)...))
	span.End(trace.WithTimestamp(now))
}

func (t *Telemetry) leaseLost(e observe.LeaseLost) {
	if is, ok := t.handlings.get(deliveryKey{e.Topic, e.Group, e.ID, e.Token}); ok {
		is.span.SetAttributes(keyLeaseLost.Bool(true))
	}
}

func (t *Telemetry) called(e observe.Called) {
	if e.Script == claimScript || settles(e.Script) {
		t.meters.called(context.Background(), e.Took, e.Script, e.Topic, errorAttributes(e.Err, true))
	}
}
