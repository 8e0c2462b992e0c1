package redisdelayotel

import (
	"container/list"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// maxEnded is how many handlings that have ended may wait for their settlement. If there are more, most will never
// be settled: their SubscriberConfig has no Telemetry.Observer, or their subscription ended while Redis was down.
const maxEnded = 4096

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
	open  map[deliveryKey]*unsettled // guarded by mu
	ended list.List                  // guarded by mu; of deliveryKey, in the order in which they ended
}

type unsettled struct {
	handled
	place *list.Element // in ended; nil: it has not ended
}

// put adds a handling that begins. A second one of the same delivery, as a retrying middleware
// makes, replaces the first.
func (h *handlings) put(begun handled) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open == nil {
		h.open = map[deliveryKey]*unsettled{}
	}
	h.remove(begun.key)
	h.open[begun.key] = &unsettled{handled: begun}
}

// end says that a handling has ended, once or more. If more than limit have, it forgets the
// first.
func (h *handlings) end(key deliveryKey, limit int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	u, ok := h.open[key]
	if !ok || u.place != nil {
		return
	}
	u.place = h.ended.PushBack(key)
	if h.ended.Len() > limit {
		first, _ := h.ended.Front().Value.(deliveryKey)
		h.remove(first)
	}
}

func (h *handlings) get(key deliveryKey) (handled, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if u, ok := h.open[key]; ok {
		return u.handled, true
	}
	return handled{}, false
}

// take removes a handling.
func (h *handlings) take(key deliveryKey) (handled, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.remove(key)
}

// remove is called with mu held.
func (h *handlings) remove(key deliveryKey) (handled, bool) {
	u, ok := h.open[key]
	if !ok {
		return handled{}, false
	}
	delete(h.open, key)
	if u.place != nil {
		h.ended.Remove(u.place)
	}
	return u.handled, true
}

func (h *handling) key() deliveryKey {
	return deliveryKey{h.delivery.Topic, h.delivery.Group, h.delivery.ID, h.delivery.Token}
}

// remember keeps a handling until it is settled, if anybody reports that.
func (t *Telemetry) remember(h *handling) {
	if h.delivery.ID != "" && t.observing.Load() {
		t.handlings.put(handled{h.key(), h.uuid, h.creation, h.span, h.start})
	}
}
