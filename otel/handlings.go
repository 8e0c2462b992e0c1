package redisdelayotel

import (
	"container/list"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// maxHandlings is how many handlings may wait for their settlement. More can only be left
// over: of subscriptions whose config has no Telemetry.Observer, or that ended without Redis.
const maxHandlings = 100_000

// deliveryKey names one delivery of a message.
type deliveryKey struct {
	topic, group, id string
	token            int64
}

// handled is what a settlement needs to know of its handling.
type handled struct {
	key      deliveryKey
	uuid     string
	creation trace.SpanContext // of the message
	span     trace.Span
	start    time.Time
}

// handlings are those that are not settled yet. The zero value is ready for use.
type handlings struct {
	mu    sync.Mutex
	open  map[deliveryKey]*list.Element // guarded by mu
	order list.List                     // guarded by mu; of handled, oldest first
}

// put adds a handling and forgets the oldest if there are more than limit. A second one of
// the same delivery, as a retrying middleware makes, replaces the first.
func (h *handlings) put(value handled, limit int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open == nil {
		h.open = map[deliveryKey]*list.Element{}
	}
	if was, ok := h.open[value.key]; ok {
		was.Value = value
		return
	}
	h.open[value.key] = h.order.PushBack(value)
	if h.order.Len() > limit {
		h.remove(h.order.Front())
	}
}

func (h *handlings) get(key deliveryKey) (value handled, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if element, open := h.open[key]; open {
		value, ok = element.Value.(handled)
	}
	return value, ok
}

// take removes a handling.
func (h *handlings) take(key deliveryKey) (value handled, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if element, open := h.open[key]; open {
		return h.remove(element), true
	}
	return handled{}, false
}

// remove is called with mu held.
func (h *handlings) remove(element *list.Element) handled {
	value, _ := h.order.Remove(element).(handled)
	delete(h.open, value.key)
	return value
}

// remember keeps a handling until it is settled, if anybody reports that.
func (t *Telemetry) remember(h *handling) {
	if d := h.delivery; d.ID != "" && t.observing.Load() {
		t.handlings.put(handled{deliveryKey{d.Topic, d.Group, d.ID, d.Token}, h.uuid, h.creation, h.span, h.start}, maxHandlings)
	}
}
